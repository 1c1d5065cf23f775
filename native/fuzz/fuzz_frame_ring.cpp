// Feeds bytes as steps to a frame ring and its model (tests/ring_model.hpp), and aborts when they disagree. Two bytes
// choose the ring, then every two are one step.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/ring_model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count < 2) return 0;
  tensormem::test::RingModel model(1U + bytes[0] % 8, static_cast<tensormem::WhenFull>(bytes[1] % 3));
  if (!model.opened()) std::abort();
  for (std::size_t at = 2; at + 2 <= count; at += 2)
    if (!model.step(bytes[at], bytes[at + 1])) std::abort();
  return 0;
}

// Feeds bytes as steps to an offset allocator and its model (tests/offset_model.hpp), and aborts when they disagree.
// Two bytes choose the space, then every six are one step: what, a magnitude, and two numbers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/offset_model.hpp"

namespace {

constexpr std::size_t kStepBytes = 6;

void must(bool same) {
  if (!same) std::abort();
}

std::uint64_t pair(const std::uint8_t* bytes) { return bytes[0] | static_cast<std::uint64_t>(bytes[1]) << 8; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count < 2) return 0;
  tensormem::test::OffsetModel model((1ULL << (bytes[0] % 63)) + bytes[0] / 63, 1ULL << (bytes[1] % 13));
  must(model.opened());
  std::size_t steps = 0;
  for (std::size_t at = 2; at + kStepBytes <= count; at += kStepBytes) {
    const std::uint8_t* step = bytes + at;
    must(model.step(step[0], pair(step + 2) << (step[1] % 49), pair(step + 4)));
    if (++steps % 8 == 0) must(model.agrees());
  }
  must(model.agrees());
  return 0;
}

// Feeds bytes to the parser of a channel's messages. What passes is said again to the byte, and no corner of the tensor
// lies outside the memory that the message speaks of.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "share/tensor_message.hpp"

namespace {

using namespace tensormem;

void must(bool holds) {
  if (!holds) std::abort();
}

void look_at_corners(const TensorMessage& message) {
  const std::int64_t item = (message.dtype.bits * message.dtype.lanes + 7) / 8;
  if (message.ndim > 12 || message.dtype.bits * message.dtype.lanes % 8 != 0) return;
  for (std::uint32_t corner = 0; corner < 1U << message.ndim; ++corner) {
    std::int64_t offset = static_cast<std::int64_t>(message.offset);
    for (std::size_t dim = 0; dim < static_cast<std::size_t>(message.ndim); ++dim) {
      if (message.shape[dim] == 0) return;
      if ((corner >> dim & 1) != 0) offset += (message.shape[dim] - 1) * message.strides[dim] * item;
    }
    must(offset >= 0 && static_cast<std::uint64_t>(offset + item) <= message.capacity);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  TensorMessage message;
  if (!parse_message(bytes, count, &message).ok()) return 0;
  std::array<std::uint8_t, kMaxMessageBytes> again;
  std::size_t length = 0;
  must(message.ndim >= 0 && message.ndim <= kMaxDims && descriptor_count(message.kind) <= 2);
  must(format_message(message, &again, &length).ok() && length == count);
  must(std::memcmp(bytes, again.data(), count) == 0);
  if (message.kind == MessageKind::tensor) look_at_corners(message);
  return 0;
}

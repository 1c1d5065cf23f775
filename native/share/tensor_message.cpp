#include "share/tensor_message.hpp"

#include <bit>
#include <cstring>

#include "tensor/dlpack_check.hpp"

namespace tensormem {

namespace {

static_assert(std::endian::native == std::endian::little, "the numbers of a message are copied as they are");

constexpr std::array<std::uint8_t, 8> kMagic{'t', 'm', 's', 'h', 'a', 'r', 'e', '\0'};
constexpr std::uint16_t kVersion = 1;
constexpr std::uint64_t kMostBytes = 1ULL << 62;

Status refuse(const char* rule, std::size_t at) { return Status::fail(Code::malformed_message, rule, at); }

template <typename Number>
Number read(const std::uint8_t* bytes, std::size_t at) {
  Number value;
  std::memcpy(&value, bytes + at, sizeof value);
  return value;
}

template <typename Number>
void write(std::uint8_t* bytes, std::size_t at, Number value) {
  std::memcpy(bytes + at, &value, sizeof value);
}

std::size_t length_of(std::int32_t ndim) {
  return kMessageHeadBytes + 2 * static_cast<std::size_t>(ndim) * sizeof(std::int64_t);
}

// A ring's format is in its own file, which checks it; the message brings only the descriptors.
Status check_ring(const TensorMessage& message) {
  if (message.ndim != 0) return refuse("a ring has no shape in its message", 20);
  if (message.dtype.code != 0 || message.dtype.bits != 0 || message.dtype.lanes != 0)
    return refuse("a ring has no element type in its message", 16);
  if (message.offset != 0) return refuse("a ring has no offset in its message", 24);
  return {};
}

Status check_tensor(const TensorMessage& message) {
  if (!dlpack::is_known(message.dtype) || message.dtype.lanes == 0) return refuse("the element type is unknown", 16);
  ElementWidth width;
  width.bits = static_cast<std::uint32_t>(message.dtype.bits) * message.dtype.lanes;
  width.packed = width.bits % 8 != 0;
  Reach reach;
  Status measured = measure_layout(message.ndim, message.shape.data(), message.strides.data(), width,
                                   Code::malformed_message, &reach);
  if (!measured.ok()) {
    measured.set_fact(0, kMessageHeadBytes);
    return measured;
  }
  if (message.offset > message.capacity || reach.below > message.offset ||
      reach.above > message.capacity - message.offset)
    return refuse("the elements do not lie inside the memory", 24);
  return {};
}

Status check(const TensorMessage& message) {
  if (message.kind != MessageKind::tensor && message.kind != MessageKind::ring)
    return refuse("the message is of an unknown kind", 10);
  if ((message.flags & ~TensorMessage::kReadOnly) != 0) return refuse("a flag is unknown", 12);
  if (message.capacity == 0 || message.capacity > kMostBytes)
    return refuse("the memory is empty or larger than any memory", 32);
  return message.kind == MessageKind::ring ? check_ring(message) : check_tensor(message);
}

}  // namespace

std::uint32_t descriptor_count(MessageKind kind) noexcept { return kind == MessageKind::ring ? 2 : 1; }

Status parse_message(const std::uint8_t* bytes, std::size_t count, TensorMessage* message) noexcept {
  if (count < kMessageHeadBytes) return refuse("the message is shorter than its head", count);
  if (std::memcmp(bytes, kMagic.data(), kMagic.size()) != 0) return refuse("the message does not begin like one", 0);
  if (read<std::uint16_t>(bytes, 8) != kVersion) return refuse("the message is of another version", 8);
  TensorMessage found;
  const auto ndim = read<std::uint32_t>(bytes, 20);
  if (ndim > static_cast<std::uint32_t>(kMaxDims)) return refuse("the memory has more than 64 dimensions", 20);
  found.ndim = static_cast<std::int32_t>(ndim);
  if (count != length_of(found.ndim)) return refuse("the message is not as long as its dimensions say", count);
  found.kind = static_cast<MessageKind>(read<std::uint16_t>(bytes, 10));
  found.flags = read<std::uint32_t>(bytes, 12);
  found.dtype = {bytes[16], bytes[17], read<std::uint16_t>(bytes, 18)};
  found.offset = read<std::uint64_t>(bytes, 24);
  found.capacity = read<std::uint64_t>(bytes, 32);
  const std::size_t numbers = ndim * sizeof(std::int64_t);
  std::memcpy(found.shape.data(), bytes + kMessageHeadBytes, numbers);
  std::memcpy(found.strides.data(), bytes + kMessageHeadBytes + numbers, numbers);
  TM_TRY(check(found));
  *message = found;
  return {};
}

Status format_message(const TensorMessage& message, std::array<std::uint8_t, kMaxMessageBytes>* bytes,
                      std::size_t* count) noexcept {
  if (message.ndim < 0 || message.ndim > kMaxDims) return refuse("the memory has more than 64 dimensions", 20);
  TM_TRY(check(message));
  std::uint8_t* const to = bytes->data();
  std::memcpy(to, kMagic.data(), kMagic.size());
  write(to, 8, kVersion);
  write(to, 10, static_cast<std::uint16_t>(message.kind));
  write(to, 12, message.flags);
  to[16] = message.dtype.code;
  to[17] = message.dtype.bits;
  write(to, 18, message.dtype.lanes);
  write(to, 20, static_cast<std::uint32_t>(message.ndim));
  write(to, 24, message.offset);
  write(to, 32, message.capacity);
  const std::size_t numbers = static_cast<std::size_t>(message.ndim) * sizeof(std::int64_t);
  std::memcpy(to + kMessageHeadBytes, message.shape.data(), numbers);
  std::memcpy(to + kMessageHeadBytes + numbers, message.strides.data(), numbers);
  *count = length_of(message.ndim);
  return {};
}

}  // namespace tensormem

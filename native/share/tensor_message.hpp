// Owns: what a channel says about memory whose descriptors travel beside it: a fixed little-endian head, then the shape
// and strides. Every field is checked before anything is opened or mapped, and every message is exactly as long as its
// head says. Must not know: sockets, descriptors, whether the file really has the bytes (its receiver looks).
//
//   at  0  8 bytes  magic            at 16  u8 u8 u16  element type: code, bits, lanes
//   at  8  u16      version          at 20  u32        dimensions, at most 64
//   at 10  u16      kind             at 24  u64        offset of the first element in the file, in bytes
//   at 12  u32      flags            at 32  u64        bytes of the file that belong to the memory
//   at 40  i64 x n  shape            then   i64 x n    strides, in elements
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "tensor/dlpack.hpp"
#include "tensor/layout.hpp"

namespace tensormem {

enum class MessageKind : std::uint16_t { tensor = 1, ring = 2 };

struct TensorMessage {
  static constexpr std::uint32_t kReadOnly = 1;
  MessageKind kind = MessageKind::tensor;
  std::uint32_t flags = 0;
  dlpack::DataType dtype{};
  std::int32_t ndim = 0;
  std::uint64_t offset = 0;
  std::uint64_t capacity = 0;
  std::array<std::int64_t, kMaxDims> shape{};
  std::array<std::int64_t, kMaxDims> strides{};
};

inline constexpr std::size_t kMessageHeadBytes = 40;
inline constexpr std::size_t kMaxMessageBytes = kMessageHeadBytes + 2 * kMaxDims * sizeof(std::int64_t);

// How many descriptors come with a message of this kind.
std::uint32_t descriptor_count(MessageKind kind) noexcept;

// Fails with `malformed_message` and the position of the first byte that cannot be right.
Status parse_message(const std::uint8_t* bytes, std::size_t count, TensorMessage* message) noexcept;
// The same checks, then the bytes: what cannot be received is not sent. Gives how many there are.
Status format_message(const TensorMessage& message, std::array<std::uint8_t, kMaxMessageBytes>* bytes,
                      std::size_t* count) noexcept;

}  // namespace tensormem

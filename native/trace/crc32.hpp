// Owns: the checksum of chunks: CRC-32 as zlib and every `crc32` function of a standard library computes it, eight
// bytes at a step.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensormem {

// Goes on from `before`, the checksum of what stands in front; 0 at the beginning.
std::uint32_t crc32(const void* bytes, std::size_t count, std::uint32_t before = 0) noexcept;

}  // namespace tensormem

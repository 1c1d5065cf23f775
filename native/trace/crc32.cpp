#include "trace/crc32.hpp"

#include <array>
#include <cstring>

namespace tensormem {

namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320U;  // reflected
using Table = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Table make_table() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1U) != 0 ? (rest >> 1) ^ kPolynomial : rest >> 1;
    table[0][byte] = rest;
  }
  for (std::size_t row = 1; row < 8; ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t above = table[row - 1][byte];
      table[row][byte] = (above >> 8) ^ table[0][above & 0xFFU];
    }
  }
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

std::uint32_t crc32(const void* bytes, std::size_t count, std::uint32_t before) noexcept {
  const auto* next = static_cast<const unsigned char*>(bytes);
  std::uint32_t crc = ~before;
  for (; count >= 8; count -= 8, next += 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, next, 4);
    std::memcpy(&high, next + 4, 4);
    low ^= crc;
    crc = kTable[7][low & 0xFFU] ^ kTable[6][(low >> 8) & 0xFFU] ^ kTable[5][(low >> 16) & 0xFFU] ^
          kTable[4][low >> 24] ^ kTable[3][high & 0xFFU] ^ kTable[2][(high >> 8) & 0xFFU] ^
          kTable[1][(high >> 16) & 0xFFU] ^ kTable[0][high >> 24];
  }
  for (; count > 0; --count, ++next) crc = (crc >> 8) ^ kTable[0][(crc ^ *next) & 0xFFU];
  return ~crc;
}

}  // namespace tensormem

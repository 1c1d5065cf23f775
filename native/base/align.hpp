// Owns: arithmetic on sizes, alignments and offsets, with overflow told, never wrapped.
// Must not know: memory, drivers, errors. Pure functions only.
#pragma once

#include <cstdint>
#include <limits>

namespace tensormem {

inline constexpr std::uint64_t kNoOverflowLimit = std::numeric_limits<std::int64_t>::max();
inline constexpr std::uint64_t kMaxAlignment = 1ULL << 30;

// Not std::has_single_bit: without a machine option that is a call into the compiler's library.
constexpr bool is_power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

constexpr bool is_aligned(std::uint64_t value, std::uint64_t alignment) { return (value & (alignment - 1)) == 0; }

constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t alignment) { return value & ~(alignment - 1); }

// The caller has checked that `value` is at most kNoOverflowLimit; see `checked_align_up` otherwise.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// True and `*out` set when `a + b` fits.
constexpr bool checked_add(std::uint64_t a, std::uint64_t b, std::uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

constexpr bool checked_multiply(std::uint64_t a, std::uint64_t b, std::uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

constexpr bool checked_align_up(std::uint64_t value, std::uint64_t alignment, std::uint64_t* out) {
  std::uint64_t raised = 0;
  if (!checked_add(value, alignment - 1, &raised)) return false;
  *out = raised & ~(alignment - 1);
  return true;
}

// [offset, offset + size) lies inside [0, capacity), and the sum does not wrap.
constexpr bool range_within(std::uint64_t offset, std::uint64_t size, std::uint64_t capacity) {
  return offset <= capacity && size <= capacity - offset;
}

}  // namespace tensormem

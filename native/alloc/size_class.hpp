// Owns: the size classes of free ranges, 128 to each power of two, and the bitmap that says which of them have members.
// A class spans at most 1/128 of its sizes; below 256 units every size has a class of its own.
// Must not know: what a unit is, or what the members are.
#pragma once

#include <bit>
#include <cstdint>

#include "base/invariant.hpp"

namespace tensormem {

using SizeClass = std::uint32_t;

inline constexpr std::uint32_t kFineBits = 7;
// Sizes stay below 2^63, so the highest one has its top bit at 62.
inline constexpr std::uint32_t kClassWords = ((62 - kFineBits) << kFineBits) / 64 + (2U << kFineBits) / 64;

// Classes are ordered as sizes are: a larger size never has a lower class.
constexpr SizeClass class_of(std::uint64_t units) {
  constexpr std::uint64_t kLinear = 1ULL << kFineBits;
  const auto shift = static_cast<std::uint32_t>(63 - std::countl_zero(units | kLinear)) - kFineBits;
  return (shift << kFineBits) + static_cast<SizeClass>(units >> shift);
}

class ClassBitmap {
 public:
  static constexpr std::uint32_t kEnd = kClassWords;  // "no such word"

  void set(SizeClass at) {
    const std::uint64_t before = words_[at / 64];
    words_[at / 64] = before | bit(at);
    if (before == 0) [[unlikely]]
      summary_[at / 4096] |= bit(at / 64);
  }

  // Clears the class when `empty` is 1 and leaves it when 0, without a branch: nobody could predict it.
  void clear_if(SizeClass at, std::uint64_t empty) {
    const std::uint64_t after = words_[at / 64] & ~(empty << (at % 64));
    words_[at / 64] = after;
    if (after == 0) [[unlikely]]
      summary_[at / 4096] &= ~bit(at / 64);
  }

  std::uint64_t word(std::uint32_t index) const { return words_[index]; }
  // Members of the word of `at` that are not below it.
  std::uint64_t word_from(SizeClass at) const { return words_[at / 64] & (~0ULL << (at % 64)); }
  bool test(SizeClass at) const { return (words_[at / 64] & bit(at)) != 0; }

  // The first word above `index` that has a member, or kEnd.
  std::uint32_t next_word(std::uint32_t index) const {
    std::uint32_t group = index / 64;
    std::uint64_t found = summary_[group] & (~1ULL << (index % 64));
    while (found == 0 && ++group < kGroups) found = summary_[group];
    return found == 0 ? kEnd : group * 64 + static_cast<std::uint32_t>(std::countr_zero(found));
  }

  // The highest class that has a member; false when none has.
  bool highest(SizeClass* out) const {
    for (std::uint32_t group = kGroups; group-- > 0;) {
      if (summary_[group] == 0) continue;
      const std::uint32_t index = group * 64 + top_bit(summary_[group]);
      *out = index * 64 + top_bit(words_[index]);
      return true;
    }
    return false;
  }

  bool is_valid() const {
    for (std::uint32_t index = 0; index < kClassWords; ++index) {
      if ((words_[index] != 0) != ((summary_[index / 64] & bit(index)) != 0)) return false;
    }
    return words_[kClassWords] == 0 && words_[kNowhere / 64] == kNobody;
  }

  // A class outside all others whose word never becomes zero: where a branchless clear may land and do nothing.
  // The word before it is always empty, for searches that start above the last class.
  static constexpr SizeClass kNowhere = (kClassWords + 1) * 64;

  ClassBitmap() { words_[kNowhere / 64] = kNobody; }

 private:
  static constexpr std::uint32_t kGroups = (kClassWords + 63) / 64;
  static constexpr std::uint64_t kNobody = ~0ULL;

  static constexpr std::uint64_t bit(std::uint32_t at) { return 1ULL << (at % 64); }
  static std::uint32_t top_bit(std::uint64_t word) { return static_cast<std::uint32_t>(63 - std::countl_zero(word)); }

  std::uint64_t summary_[kGroups] = {};
  std::uint64_t words_[kClassWords + 2] = {};
};

static_assert(class_of((1ULL << 63) - 1) + 1 == kClassWords * 64);

}  // namespace tensormem

// Owns: one bit a page for up to millions of pages, with two summaries above, so that asking about any range, counting
// all, and finding the next page of a kind take a few words however many pages there are. Words never written cost no
// memory.
// Must not know: what a set bit means. Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstdint>

#include "base/lazy_array.hpp"

namespace tensormem {

class PageBitmap {
 public:
  static constexpr std::uint64_t kNone = ~0ULL;

  // Throws bad_alloc. All bits are clear.
  explicit PageBitmap(std::uint64_t size = 0);

  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t count() const noexcept { return count_; }
  bool test(std::uint64_t page) const noexcept { return (words_[page / 64] >> (page % 64) & 1) != 0; }
  void set(std::uint64_t page) noexcept { change(page, true); }
  void clear(std::uint64_t page) noexcept { change(page, false); }
  void set(std::uint64_t first, std::uint64_t count) noexcept { change_range(first, count, true); }
  void clear(std::uint64_t first, std::uint64_t count) noexcept { change_range(first, count, false); }

  // The first page at or after `from`, or kNone.
  std::uint64_t next_set(std::uint64_t from) const noexcept;
  std::uint64_t next_clear(std::uint64_t from) const noexcept;
  bool all_set(std::uint64_t first, std::uint64_t count) const noexcept;
  bool none_set(std::uint64_t first, std::uint64_t count) const noexcept;

  bool is_valid() const noexcept;

 private:
  void change(std::uint64_t page, bool value) noexcept;
  void change_range(std::uint64_t first, std::uint64_t count, bool value) noexcept;
  void write(std::uint64_t word, std::uint64_t bits) noexcept;

  std::uint64_t size_ = 0;
  std::uint64_t count_ = 0;
  LazyArray<std::uint64_t> words_;
  LazyArray<std::uint64_t> any_;   // a bit for each word that has a set bit
  LazyArray<std::uint64_t> full_;  // a bit for each word that has no clear bit
};

}  // namespace tensormem

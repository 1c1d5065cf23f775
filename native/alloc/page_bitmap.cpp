#include "alloc/page_bitmap.hpp"

#include <algorithm>
#include <bit>

namespace tensormem {

namespace {

constexpr std::uint64_t kOnes = ~0ULL;

std::uint64_t words_for(std::uint64_t bits) { return (bits + 63) / 64; }

// The first bit at or after `from` in `words` read through `flip`, or kNone.
std::uint64_t scan(const LazyArray<std::uint64_t>& words, std::uint64_t from, std::uint64_t flip) {
  std::uint64_t word = from / 64;
  if (word >= words.size()) return PageBitmap::kNone;
  std::uint64_t bits = (words[word] ^ flip) & (kOnes << (from % 64));
  while (bits == 0) {
    if (++word == words.size()) return PageBitmap::kNone;
    bits = words[word] ^ flip;
  }
  return word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
}

}  // namespace

PageBitmap::PageBitmap(std::uint64_t size)
    : size_(size), words_(words_for(size)), any_(words_for(words_.size())), full_(words_for(words_.size())) {}

void PageBitmap::write(std::uint64_t word, std::uint64_t bits) noexcept {
  count_ += static_cast<std::uint64_t>(std::popcount(bits)) - static_cast<std::uint64_t>(std::popcount(words_[word]));
  words_[word] = bits;
  const std::uint64_t mark = 1ULL << (word % 64);
  std::uint64_t& any = any_[word / 64];
  std::uint64_t& full = full_[word / 64];
  any = bits != 0 ? any | mark : any & ~mark;
  full = bits == kOnes ? full | mark : full & ~mark;
}

void PageBitmap::change(std::uint64_t page, bool value) noexcept {
  const std::uint64_t mark = 1ULL << (page % 64);
  const std::uint64_t bits = words_[page / 64];
  write(page / 64, value ? bits | mark : bits & ~mark);
}

void PageBitmap::change_range(std::uint64_t first, std::uint64_t count, bool value) noexcept {
  for (std::uint64_t at = first; at < first + count;) {
    const std::uint64_t take = std::min(64 - at % 64, first + count - at);
    const std::uint64_t mask = (take == 64 ? kOnes : (1ULL << take) - 1) << (at % 64);
    const std::uint64_t bits = words_[at / 64];
    write(at / 64, value ? bits | mask : bits & ~mask);
    at += take;
  }
}

std::uint64_t PageBitmap::next_set(std::uint64_t from) const noexcept {
  if (from >= size_) return kNone;
  const std::uint64_t here = words_[from / 64] & (kOnes << (from % 64));
  if (here != 0) return from / 64 * 64 + static_cast<std::uint64_t>(std::countr_zero(here));
  const std::uint64_t word = scan(any_, from / 64 + 1, 0);
  if (word == kNone) return kNone;
  return word * 64 + static_cast<std::uint64_t>(std::countr_zero(words_[word]));
}

std::uint64_t PageBitmap::next_clear(std::uint64_t from) const noexcept {
  if (from >= size_) return kNone;
  std::uint64_t found = kNone;
  const std::uint64_t here = ~words_[from / 64] & (kOnes << (from % 64));
  if (here != 0) {
    found = from / 64 * 64 + static_cast<std::uint64_t>(std::countr_zero(here));
  } else {
    const std::uint64_t word = scan(full_, from / 64 + 1, kOnes);
    if (word >= words_.size()) return kNone;
    found = word * 64 + static_cast<std::uint64_t>(std::countr_zero(~words_[word]));
  }
  return found < size_ ? found : kNone;
}

bool PageBitmap::all_set(std::uint64_t first, std::uint64_t count) const noexcept {
  const std::uint64_t hole = next_clear(first);
  return hole == kNone || hole >= first + count;
}

bool PageBitmap::none_set(std::uint64_t first, std::uint64_t count) const noexcept {
  const std::uint64_t found = next_set(first);
  return found == kNone || found >= first + count;
}

bool PageBitmap::is_valid() const noexcept {
  std::uint64_t count = 0;
  for (std::uint64_t word = 0; word < words_.size(); ++word) {
    count += static_cast<std::uint64_t>(std::popcount(words_[word]));
    if (((any_[word / 64] >> (word % 64) & 1) != 0) != (words_[word] != 0)) return false;
    if (((full_[word / 64] >> (word % 64) & 1) != 0) != (words_[word] == kOnes)) return false;
  }
  return count == count_;
}

}  // namespace tensormem

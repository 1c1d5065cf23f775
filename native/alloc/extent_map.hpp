// Owns: which parts of [0, capacity) are free, in the order of addresses and of sizes: for pools whose callers may ask
// for a place by name. Best fit, lowest address among equals; a logarithm of the number of free parts an operation.
// Must not know: pages, memory. Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tensormem {

class ExtentMap {
 public:
  // Throws bad_alloc, as the two that take.
  explicit ExtentMap(std::uint64_t capacity);

  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t total_free() const noexcept { return total_free_; }
  std::uint64_t largest_free() const noexcept { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  std::uint64_t largest_free_offset() const noexcept { return by_size_.empty() ? 0 : by_size_.rbegin()->second; }

  // Finds room of `size` at a multiple of `alignment`, below `end`. False when there is none.
  bool take(std::uint64_t size, std::uint64_t alignment, std::uint64_t* offset, std::uint64_t end = ~0ULL);
  // Takes exactly this part. False, and nothing changed, unless all of it is free.
  bool take_at(std::uint64_t offset, std::uint64_t size);
  bool is_free(std::uint64_t offset, std::uint64_t size) const noexcept;
  // The part must be taken. Throws bad_alloc only when there were never so many free parts before.
  void give_back(std::uint64_t offset, std::uint64_t size);

  template <typename Visitor>
  void for_each_free(std::uint64_t from, std::uint64_t end, Visitor&& visit) const {
    auto at = free_.upper_bound(from);
    if (at != free_.begin()) --at;
    for (; at != free_.end() && at->first < end; ++at) visit(at->first, at->second);
  }
  // Free parts of at least `size`, the smallest first; until the visitor says false.
  template <typename Visitor>
  void for_each_of(std::uint64_t size, Visitor&& visit) const {
    for (auto at = by_size_.lower_bound({size, 0}); at != by_size_.end(); ++at) {
      if (!visit(at->second, at->first)) return;
    }
  }
  bool is_valid() const noexcept;

 private:
  using Free = std::map<std::uint64_t, std::uint64_t>;
  using Sizes = std::set<std::pair<std::uint64_t, std::uint64_t>>;

  Free::node_type new_place();
  Sizes::node_type new_size();
  void resize(Free::iterator extent, std::uint64_t offset, std::uint64_t size) noexcept;
  void cut(Free::iterator extent, std::uint64_t offset, std::uint64_t size);
  void forget(Free::iterator extent) noexcept;
  void add(std::uint64_t offset, std::uint64_t size);

  std::uint64_t capacity_;
  std::uint64_t total_free_ = 0;
  Free free_;      // offset to size
  Sizes by_size_;  // (size, offset)
  // Nodes of parts that are no more, so that what was just taken can be given back without memory.
  Free spare_places_;
  Sizes spare_sizes_;
};

}  // namespace tensormem

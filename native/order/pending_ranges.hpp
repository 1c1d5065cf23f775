// Owns: ranges that were given back on one stream and may be used again on it at once, found by size.
// Ranges are named by (chunk, node); the pool keeps their places, this keeps their order: by size, and within a size
// the oldest first. Each remembers when it came, so that what came before a marker can be told from what came after.
// Must not know: offsets, addresses, locks.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "order/event_cache.hpp"

namespace tensormem {

struct RangeName {
  std::uint32_t chunk = 0;
  std::uint32_t node = 0;

  std::uint64_t key() const { return static_cast<std::uint64_t>(chunk) << 32 | node; }
};

struct PendingRange {
  RangeName name;
  std::uint64_t size = 0;
  std::uint64_t since = 0;  // the number of the latest deallocation in it
};

class PendingRanges {
 public:
  explicit PendingRanges(StreamId of) : stream(of) {}

  void add(const PendingRange& range) {
    const auto place = by_size_.emplace(range.size, range);
    by_name_.emplace(range.name.key(), place);
    bytes_ += range.size;
  }

  // Takes a range out again, if it is here.
  bool remove(RangeName name, PendingRange* range) {
    const auto found = by_name_.find(name.key());
    if (found == by_name_.end()) return false;
    *range = found->second->second;
    forget(found->second);
    return true;
  }

  // Takes out the smallest range of at least `size` that `fits` accepts; looks at `kTries` of them.
  template <typename Fits>
  bool take(std::uint64_t size, Fits fits, PendingRange* range) {
    int tries = 0;
    for (auto it = by_size_.lower_bound(size); it != by_size_.end() && tries < kTries; ++it, ++tries) {
      if (!fits(it->second)) continue;
      *range = it->second;
      forget(it);
      return true;
    }
    return false;
  }

  // Takes out every range that came no later than `until`.
  template <typename Visit>
  void take_until(std::uint64_t until, Visit visit) {
    for (auto it = by_size_.begin(); it != by_size_.end();) {
      const auto here = it++;
      if (here->second.since > until) continue;
      const PendingRange range = here->second;
      forget(here);
      visit(range);
    }
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [size, range] : by_size_) visit(range);
  }

  bool empty() const { return by_size_.empty(); }
  std::uint64_t bytes() const { return bytes_; }

  const StreamId stream;
  EventRef marker;  // behind everything that came up to `marked`
  std::uint64_t marked = 0;

 private:
  using BySize = std::multimap<std::uint64_t, PendingRange>;
  static constexpr int kTries = 16;

  void forget(BySize::iterator place) {
    bytes_ -= place->second.size;
    by_name_.erase(place->second.name.key());
    by_size_.erase(place);
  }

  BySize by_size_;
  std::unordered_map<std::uint64_t, BySize::iterator> by_name_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tensormem

// Owns: ranges that were given back on one stream and may be used again on it at once, found by size.
// Ranges are named by (chunk, node); the pool keeps their places, this keeps their order: by size, and within a size
// the oldest first. Each remembers when it came, so that what came before a marker can be told from what came after.
// The latest of each of a few sizes is parked: kept whole, for the next of its size, at no cost of joining and cutting.
// Must not know: offsets, addresses, locks.
#pragma once

#include <array>
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

  // Parks a range; true when another had to leave for it, which is then `*evicted`.
  bool park(const PendingRange& range, PendingRange* evicted) {
    PendingRange& place = parked_[place_of(range.size)];
    *evicted = std::exchange(place, range);
    parked_bytes_ += range.size - evicted->size;
    return evicted->size != 0;
  }

  // Takes out the parked range of exactly `size`, if there is one that `fits` accepts.
  template <typename Fits>
  bool take_parked(std::uint64_t size, Fits fits, PendingRange* range) {
    PendingRange& place = parked_[place_of(size)];
    if (place.size != size || !fits(place)) return false;
    *range = place;
    leave(place);
    return true;
  }

  // Takes out every parked range.
  template <typename Visit>
  void unpark(Visit visit) {
    for (PendingRange& place : parked_) {
      if (place.size == 0) continue;
      const PendingRange range = place;
      leave(place);
      visit(range);
    }
  }
  bool has_parked() const { return parked_bytes_ != 0; }

  // Takes a range out again, if it is here and not parked.
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
    for (PendingRange& place : parked_) {
      if (place.size == 0 || place.since > until) continue;
      const PendingRange range = place;
      leave(place);
      visit(range);
    }
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
    for (const PendingRange& place : parked_)
      if (place.size != 0) visit(place);
    for (const auto& [size, range] : by_size_) visit(range);
  }

  bool empty() const { return by_size_.empty() && !has_parked(); }
  std::uint64_t bytes() const { return bytes_ + parked_bytes_; }

  // Both ways to a range agree, and the sums are right.
  bool is_valid() const {
    std::uint64_t bytes = 0;
    for (auto it = by_size_.begin(); it != by_size_.end(); ++it) {
      const auto named = by_name_.find(it->second.name.key());
      if (it->first != it->second.size || it->first == 0 || named == by_name_.end()) return false;
      if (&*named->second != &*it) return false;
      bytes += it->first;
    }
    std::uint64_t parked = 0;
    for (std::size_t i = 0; i < kPlaces; ++i) {
      if (parked_[i].size != 0 && place_of(parked_[i].size) != i) return false;
      parked += parked_[i].size;
    }
    return bytes == bytes_ && parked == parked_bytes_ && by_name_.size() == by_size_.size();
  }

  const StreamId stream;
  EventRef marker;  // behind everything that came up to `marked`
  std::uint64_t marked = 0;

 private:
  using BySize = std::multimap<std::uint64_t, PendingRange>;
  static constexpr int kTries = 16;
  static constexpr std::size_t kPlaces = 16;

  // Spreads sizes, whose low bits are mostly zero (Fibonacci hashing).
  static std::size_t place_of(std::uint64_t size) { return (size * 0x9E3779B97F4A7C15ULL) >> 60; }
  static_assert(kPlaces == 1U << (64 - 60));
  void leave(PendingRange& place) {
    parked_bytes_ -= place.size;
    place.size = 0;
  }

  void forget(BySize::iterator place) {
    bytes_ -= place->second.size;
    by_name_.erase(place->second.name.key());
    by_size_.erase(place);
  }

  BySize by_size_;
  std::unordered_map<std::uint64_t, BySize::iterator> by_name_;
  std::uint64_t bytes_ = 0;
  std::array<PendingRange, kPlaces> parked_{};  // empty where the size is 0
  std::uint64_t parked_bytes_ = 0;
};

}  // namespace tensormem

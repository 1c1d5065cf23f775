// Owns: a plain model of an offset allocator (a map of live ranges), and steps that do the same to both and compare.
// The random test and the fuzzer feed it numbers; it never trusts what the allocator says about itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "alloc/offset_allocator.hpp"
#include "base/align.hpp"

namespace tensormem::test {

class OffsetModel {
 public:
  OffsetModel(std::uint64_t capacity, std::uint64_t granule)
      : granule_(granule), capacity_(align_down(capacity, granule)), opened_(space_.open(capacity, granule).ok()) {}

  bool opened() const { return opened_; }
  std::size_t live_count() const { return live_.size(); }

  // Any numbers are a step. False at the first disagreement.
  bool step(std::uint8_t what, std::uint64_t a, std::uint64_t b) {
    switch (what % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return allocate(a, 1ULL << (b % 8));
      case 5:
        return allocate(a, 1ULL << (b % 64));
      case 6:
      case 7:
      case 8:
      case 9:
        return live_.empty() || deallocate(a);
      case 10:
        return deallocate_badly(static_cast<std::uint32_t>(a), b);
      case 11:
        return grow(capacity_ + a % 65536);
      case 12:
        return shrink(capacity_ - std::min(capacity_, a % 65536));
      case 13:
        return live_.empty() || split(a, b);
      case 14:
        return live_.empty() || merge(a);
      default:
        return live_.empty() || set_user(a, b);
    }
  }

  bool agrees() const {
    if (!space_.is_valid() || space_.capacity() != capacity_ || space_.used() != used_) return false;
    if (space_.largest_free() != largest_gap() || space_.total_free() != capacity_ - used_) return false;
    auto expected = live_.begin();
    bool same = true;
    space_.for_each([&](std::uint64_t offset, std::uint64_t size, bool is_free, std::uint32_t node) {
      if (is_free) return;
      same = same && expected != live_.end() && expected->first == offset && expected->second.size == size &&
             expected->second.node == node && expected->second.user == space_.user(node);
      if (expected != live_.end()) ++expected;
    });
    return same && expected == live_.end();
  }

 private:
  struct Range {
    std::uint64_t size;
    std::uint32_t node;
    std::uint64_t user;
  };
  using Live = std::map<std::uint64_t, Range>;

  Live::iterator pick(std::uint64_t index) { return std::next(live_.begin(), static_cast<long>(index % live_.size())); }

  template <typename F>
  void for_each_gap(F&& f) const {
    std::uint64_t end = 0;
    for (const auto& [offset, range] : live_) {
      if (offset > end) f(end, offset);
      end = offset + range.size;
    }
    if (capacity_ > end) f(end, capacity_);
  }
  std::uint64_t largest_gap() const {
    std::uint64_t largest = 0;
    for_each_gap([&](std::uint64_t from, std::uint64_t to) { largest = std::max(largest, to - from); });
    return largest;
  }
  bool some_gap_holds(std::uint64_t size, std::uint64_t alignment) const {
    bool found = false;
    for_each_gap([&](std::uint64_t from, std::uint64_t to) {
      std::uint64_t start = 0;
      if (checked_align_up(from, alignment, &start) && start <= to && to - start >= size) found = true;
    });
    return found;
  }

  bool allocate(std::uint64_t size, std::uint64_t alignment) {
    Allocation got;
    const Status status = space_.allocate(size, alignment, &got);
    if (size == 0 || size > kNoOverflowLimit) return status.code() == Code::invalid_size;
    const std::uint64_t rounded = align_up(size, granule_);
    if (!status.ok()) {
      return status.code() == Code::out_of_memory && !some_gap_holds(rounded, std::max(alignment, granule_)) &&
             status.failure().facts[1] == capacity_ - used_ && status.failure().facts[2] == largest_gap();
    }
    if (got.size != rounded || !is_aligned(got.offset, alignment) || !is_aligned(got.offset, granule_)) return false;
    if (!range_within(got.offset, got.size, capacity_) || !space_.is_live(got.node)) return false;
    const auto [at, fresh] = live_.insert({got.offset, {got.size, got.node, 0}});
    if (!fresh) return false;
    if (std::next(at) != live_.end() && std::next(at)->first < got.offset + got.size) return false;
    if (at != live_.begin() && std::prev(at)->first + std::prev(at)->second.size > got.offset) return false;
    used_ += got.size;
    return true;
  }
  bool deallocate(std::uint64_t index) {
    const auto range = pick(index);
    used_ -= range->second.size;
    const std::uint32_t node = range->second.node;
    live_.erase(range);
    return space_.deallocate(node).ok() && !space_.is_live(node);
  }
  // Near the nodes in use, or anywhere.
  bool deallocate_badly(std::uint32_t node, std::uint64_t b) {
    if (b % 2 == 0) node %= static_cast<std::uint32_t>(live_.size() * 2 + 4);
    const bool live =
        std::any_of(live_.begin(), live_.end(), [&](const auto& each) { return each.second.node == node; });
    return live ? space_.is_live(node) : space_.deallocate(node).code() == Code::invalid_argument;
  }
  bool grow(std::uint64_t capacity) {
    const Status status = space_.grow(capacity);
    if (capacity > kNoOverflowLimit) return status.code() == Code::invalid_size;
    capacity_ = align_down(capacity, granule_);
    return status.ok();
  }
  bool shrink(std::uint64_t capacity) {
    const std::uint64_t end = live_.empty() ? 0 : live_.rbegin()->first + live_.rbegin()->second.size;
    const Status status = space_.shrink(capacity);
    if (align_down(capacity, granule_) < end)
      return status.code() == Code::invalid_size && status.failure().facts[1] == end;
    capacity_ = align_down(capacity, granule_);
    return status.ok();
  }
  bool split(std::uint64_t a, std::uint64_t b) {
    const auto range = pick(a);
    const std::uint64_t size = b % (range->second.size + granule_);
    std::uint32_t rest = kNoNode;
    const Status status = space_.split(range->second.node, size, &rest);
    if (size == 0 || !is_aligned(size, granule_) || size >= range->second.size)
      return status.code() == Code::invalid_size;
    live_[range->first + size] = {range->second.size - size, rest, 0};
    range->second.size = size;
    return status.ok();
  }
  bool merge(std::uint64_t a) {
    const auto range = pick(a);
    const auto after = std::next(range);
    const bool touches = after != live_.end() && range->first + range->second.size == after->first;
    if (space_.live_after(range->second.node) != (touches ? after->second.node : kNoNode)) return false;
    if (!touches) return true;
    if (space_.live_before(after->second.node) != range->second.node) return false;
    space_.merge(range->second.node);
    range->second.size += after->second.size;
    live_.erase(after);
    return true;
  }
  bool set_user(std::uint64_t a, std::uint64_t b) {
    const auto range = pick(a);
    space_.set_user(range->second.node, b);
    range->second.user = b;
    return true;
  }

  OffsetAllocator space_;
  Live live_;
  std::uint64_t granule_;
  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  bool opened_;
};

}  // namespace tensormem::test

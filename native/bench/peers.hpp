// Owns: the allocators that the offset allocator is measured against, each with the same two calls. Written plainly, as
// one would on an afternoon; none is linked into the library.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tensormem::bench {

// The smallest free range that fits, the lowest of equals: two balanced trees, one by address and one by size.
class MapBestFit {
 public:
  using Handle = std::uint64_t;
  explicit MapBestFit(std::uint64_t capacity) {
    ranges_[0] = {capacity, true};
    free_.insert({capacity, 0});
  }
  Handle allocate(std::uint64_t size) {
    const auto found = free_.lower_bound({size, 0});
    const auto [have, offset] = *found;
    free_.erase(found);
    const auto range = ranges_.find(offset);
    range->second = {size, false};
    if (have > size) {
      ranges_.emplace_hint(std::next(range), offset + size, Range{have - size, true});
      free_.insert({have - size, offset + size});
    }
    if (offset + size > high_water_) high_water_ = offset + size;
    return offset;
  }
  void deallocate(Handle offset) {
    auto range = ranges_.find(offset);
    const auto after = std::next(range);
    if (after != ranges_.end() && after->second.is_free) {
      free_.erase({after->second.size, after->first});
      range->second.size += after->second.size;
      ranges_.erase(after);
    }
    if (range != ranges_.begin() && std::prev(range)->second.is_free) {
      const auto before = std::prev(range);
      free_.erase({before->second.size, before->first});
      before->second.size += range->second.size;
      ranges_.erase(range);
      range = before;
    }
    range->second.is_free = true;
    free_.insert({range->second.size, range->first});
  }
  std::uint64_t high_water() const { return high_water_; }

 private:
  struct Range {
    std::uint64_t size;
    bool is_free;
  };
  std::map<std::uint64_t, Range> ranges_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_;
  std::uint64_t high_water_ = 0;
};

// The textbook form: 16 classes to a power of two, the first of the first class whose every member fits, last in first
// out. Units of 16 bytes.
class PlainSegregatedFit {
 public:
  using Handle = std::uint32_t;
  explicit PlainSegregatedFit(std::uint64_t capacity) {
    nodes_.resize(2);
    nodes_[kEdge] = {capacity / kUnit, 0, kEdge, kEdge, kNone, kNone, false};
    for (auto& row : heads_)
      for (Handle& head : row) head = kNone;
    put(make({0, capacity / kUnit, kEdge, kEdge, kNone, kNone, true}));
  }
  Handle allocate(std::uint64_t bytes) {
    const std::uint64_t size = (bytes + kUnit - 1) / kUnit;
    const Handle taken = first_that_fits(size);
    remove(taken);
    nodes_[taken].is_free = false;
    if (nodes_[taken].size > size) {
      const Handle rest = make(
          {nodes_[taken].offset + size, nodes_[taken].size - size, taken, nodes_[taken].after, kNone, kNone, true});
      nodes_[taken].size = size;
      put(rest);
    }
    const std::uint64_t end = nodes_[taken].offset + size;
    if (end > high_water_) high_water_ = end;
    return taken;
  }
  void deallocate(Handle handle) {
    const Handle after = nodes_[handle].after;
    const Handle before = nodes_[handle].before;
    if (nodes_[after].is_free) {
      remove(after);
      absorb_after(handle);
    }
    if (nodes_[before].is_free) {
      remove(before);
      absorb_after(before);
      handle = before;
    }
    nodes_[handle].is_free = true;
    put(handle);
  }
  std::uint64_t high_water() const { return high_water_ * kUnit; }

 private:
  static constexpr std::uint64_t kUnit = 16;
  static constexpr int kFine = 4;
  static constexpr Handle kNone = 0;
  static constexpr Handle kEdge = 1;

  struct Node {
    std::uint64_t offset, size;
    Handle before, after, previous, next;
    bool is_free;
  };
  struct Class {
    int row, column;
  };

  static Class class_of(std::uint64_t size) {
    if (size < (1U << kFine)) return {0, static_cast<int>(size)};
    const int top = 63 - std::countl_zero(size);
    return {top - kFine + 1, static_cast<int>((size >> (top - kFine)) & ((1U << kFine) - 1))};
  }
  Handle first_that_fits(std::uint64_t size) const {
    std::uint64_t rounded = size;
    if (size >= (1U << kFine)) rounded += (1ULL << (63 - std::countl_zero(size) - kFine)) - 1;
    auto [row, column] = class_of(rounded);
    std::uint32_t members = columns_[row] & (~0U << column);
    if (members == 0) {
      row = std::countr_zero(rows_ & (~1ULL << row));
      members = columns_[row];
    }
    return heads_[row][std::countr_zero(members)];
  }
  Handle make(const Node& node) {
    Handle handle = spare_;
    if (handle != kNone) {
      spare_ = nodes_[handle].next;
      nodes_[handle] = node;
    } else {
      handle = static_cast<Handle>(nodes_.size());
      nodes_.push_back(node);
    }
    nodes_[node.before].after = handle;
    nodes_[node.after].before = handle;
    return handle;
  }
  void absorb_after(Handle handle) {
    const Handle gone = nodes_[handle].after;
    nodes_[handle].size += nodes_[gone].size;
    nodes_[handle].after = nodes_[gone].after;
    nodes_[nodes_[gone].after].before = handle;
    nodes_[gone].next = spare_;
    spare_ = gone;
  }
  void put(Handle handle) {
    const auto [row, column] = class_of(nodes_[handle].size);
    Handle& head = heads_[row][column];
    nodes_[handle].previous = kNone;
    nodes_[handle].next = head;
    if (head != kNone) nodes_[head].previous = handle;
    head = handle;
    columns_[row] |= 1U << column;
    rows_ |= 1ULL << row;
  }
  void remove(Handle handle) {
    const Node& node = nodes_[handle];
    if (node.next != kNone) nodes_[node.next].previous = node.previous;
    if (node.previous != kNone) {
      nodes_[node.previous].next = node.next;
      return;
    }
    const auto [row, column] = class_of(node.size);
    heads_[row][column] = node.next;
    if (node.next != kNone) return;
    columns_[row] &= ~(1U << column);
    if (columns_[row] == 0) rows_ &= ~(1ULL << row);
  }

  std::vector<Node> nodes_;
  Handle spare_ = kNone;
  std::uint64_t rows_ = 0;
  std::uint32_t columns_[64] = {};
  Handle heads_[64][1 << kFine];
  std::uint64_t high_water_ = 0;
};

}  // namespace tensormem::bench

#include "alloc/extent_map.hpp"

#include <iterator>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"

namespace tensormem {

ExtentMap::ExtentMap(std::uint64_t capacity) : capacity_(capacity) {
  if (capacity != 0) add(0, capacity);
}

ExtentMap::Free::node_type ExtentMap::new_place() {
  if (spare_places_.empty()) spare_places_.emplace(0, 0);
  return spare_places_.extract(spare_places_.begin());
}

ExtentMap::Sizes::node_type ExtentMap::new_size() {
  if (spare_sizes_.empty()) spare_sizes_.emplace(0, 0);
  return spare_sizes_.extract(spare_sizes_.begin());
}

void ExtentMap::add(std::uint64_t offset, std::uint64_t size) {
  auto placed = new_place();
  auto sized = new_size();
  placed.key() = offset;
  placed.mapped() = size;
  sized.value() = {size, offset};
  free_.insert(std::move(placed));
  by_size_.insert(std::move(sized));
  total_free_ += size;
}

void ExtentMap::forget(Free::iterator extent) noexcept {
  total_free_ -= extent->second;
  spare_sizes_.insert(by_size_.extract({extent->second, extent->first}));
  spare_places_.insert(free_.extract(extent));
}

// Takes [offset, offset + size) out of a free extent; the new parts are added before the old one goes.
void ExtentMap::cut(Free::iterator extent, std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t start = extent->first;
  const std::uint64_t end = start + extent->second;
  if (offset + size != end) add(offset + size, end - offset - size);
  if (offset == start) return forget(extent);
  resize(extent, start, offset - start);
}

bool ExtentMap::take(std::uint64_t size, std::uint64_t alignment, std::uint64_t* offset, std::uint64_t end) {
  for (auto at = by_size_.lower_bound({size, 0}); at != by_size_.end(); ++at) {
    const std::uint64_t place = align_up(at->second, alignment);
    if (place + size > at->second + at->first || place + size > end) continue;
    cut(free_.find(at->second), place, size);
    *offset = place;
    return true;
  }
  return false;
}

bool ExtentMap::is_free(std::uint64_t offset, std::uint64_t size) const noexcept {
  auto at = free_.upper_bound(offset);
  if (at == free_.begin()) return false;
  --at;
  return at->first + at->second >= offset + size;
}

bool ExtentMap::take_at(std::uint64_t offset, std::uint64_t size) {
  if (!is_free(offset, size)) return false;
  cut(std::prev(free_.upper_bound(offset)), offset, size);
  return true;
}

// Without memory of its own: the nodes are the same.
void ExtentMap::resize(Free::iterator extent, std::uint64_t offset, std::uint64_t size) noexcept {
  auto sized = by_size_.extract({extent->second, extent->first});
  auto placed = free_.extract(extent);
  total_free_ += size - placed.mapped();
  sized.value() = {size, offset};
  placed.key() = offset;
  placed.mapped() = size;
  by_size_.insert(std::move(sized));
  free_.insert(std::move(placed));
}

void ExtentMap::give_back(std::uint64_t offset, std::uint64_t size) {
  TM_EXPECT(range_within(offset, size, capacity_));
  const auto after = free_.lower_bound(offset);
  TM_ASSERT(after == free_.end() || after->first >= offset + size);
  const bool joins_after = after != free_.end() && after->first == offset + size;
  const bool joins_before = after != free_.begin() && std::prev(after)->first + std::prev(after)->second == offset;
  if (joins_before) {
    const auto before = std::prev(after);
    if (joins_after) {
      size += after->second;
      forget(after);
    }
    resize(before, before->first, before->second + size);
  } else if (joins_after) {
    resize(after, offset, size + after->second);
  } else {
    add(offset, size);
  }
}

bool ExtentMap::is_valid() const noexcept {
  std::uint64_t total = 0;
  std::uint64_t before = ~0ULL;
  for (const auto& [offset, size] : free_) {
    if (size == 0 || !range_within(offset, size, capacity_)) return false;
    if (before != ~0ULL && offset <= before) return false;  // neighbours would have been joined
    if (!by_size_.contains({size, offset})) return false;
    before = offset + size;
    total += size;
  }
  return total == total_free_ && by_size_.size() == free_.size();
}

}  // namespace tensormem

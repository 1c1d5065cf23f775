#include "core/memory_map.hpp"

#include <iterator>

#include "core/machine.hpp"

namespace simgpu {

Range& MemoryMap::add(const Range& range) {
  Range& kept = ranges_[range.start];
  kept = range;
  kept.id = next_id_++;
  return kept;
}

Range* MemoryMap::find(std::uint64_t address) {
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return nullptr;
  Range& range = std::prev(at)->second;
  return range.contains(address) ? &range : nullptr;
}

Range* MemoryMap::find_start(std::uint64_t start) {
  const auto found = ranges_.find(start);
  return found == ranges_.end() ? nullptr : &found->second;
}

bool MemoryMap::overlaps(std::uint64_t start, std::uint64_t size) const {
  auto at = ranges_.lower_bound(start);
  if (at != ranges_.end() && at->first < start + size) return true;
  return at != ranges_.begin() && std::prev(at)->second.contains(start);
}

const Window* MemoryMap::find_window(std::uint64_t address) const {
  auto at = windows_.upper_bound(address);
  if (at == windows_.begin()) return nullptr;
  const Window* window = std::prev(at)->second;
  return window->contains(address) ? window : nullptr;
}

bool Range::is_host() const {
  return kind == Kind::host || kind == Kind::registered || (kind == Kind::pooled && pool->place == PoolPlace::host);
}

bool Range::is_managed() const {
  return kind == Kind::managed || (kind == Kind::pooled && pool->place == PoolPlace::managed);
}

bool Range::is_open_to(const Device& worker, bool write) const {
  const std::uint32_t bit = 1U << worker.ordinal;
  if (kind == Kind::mapped) return ((write ? writers : readers) & bit) != 0;
  if (device == &worker) return true;
  if (kind == Kind::pooled) return ((write ? pool->writers : pool->readers) & bit) != 0;
  return (worker.peers >> device->ordinal & 1U) != 0;
}

Result MemoryMap::resolve(std::uint64_t address, std::uint64_t size, const Access& access, Span* span) {
  const Window* const window = find_window(address);
  if (window == nullptr) {
    Range* const range = find(address);
    span->alias = address;
    span->pageable = range == nullptr;
    if (range != nullptr) span->ranges.push_back(range);
    return kSuccess;
  }
  for (std::uint64_t at = address; at < address + size;) {
    Range* const range = find(at);
    if (range == nullptr) return kInvalidValue;
    if (!range->is_open_to(access.device, access.write)) {
      // The device that memory lives on copies for the others; when it may not either, nobody can.
      if (!range->is_open_to(*range->device, access.write)) return kInvalidValue;
      if (access.who == By::worker) return kPeerAccessNotEnabled;
    }
    span->ranges.push_back(range);
    at = range->start + range->size;
  }
  span->alias = window->alias(address);
  return kSuccess;
}

}  // namespace simgpu

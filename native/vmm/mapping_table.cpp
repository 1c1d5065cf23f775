#include "vmm/mapping_table.hpp"

#include <algorithm>
#include <iterator>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

std::uint64_t end_of(const MappingTable::Mappings::value_type& entry) { return entry.first + entry.second.size; }

}  // namespace

Status MappingTable::check_free(std::uint64_t offset, std::uint64_t size) const noexcept {
  auto at = mappings_.lower_bound(offset);
  if (at != mappings_.begin() && end_of(*std::prev(at)) > offset) --at;
  if (at == mappings_.end() || at->first >= offset + size) return {};
  return Status::fail(Code::already_mapped, "the range overlaps a mapping", at->first, at->second.size);
}

Status MappingTable::check_mapped(std::uint64_t offset, std::uint64_t size) const noexcept {
  const std::uint64_t end = offset + size;
  auto at = mappings_.upper_bound(offset);
  if (at != mappings_.begin()) --at;
  std::uint64_t covered = offset;
  for (; at != mappings_.end() && covered < end && at->first <= covered; ++at) {
    covered = std::max(covered, end_of(*at));
  }
  if (covered >= end) return {};
  const std::uint64_t hole_end = at != mappings_.end() && at->first < end ? at->first : end;
  return Status::fail(Code::not_mapped, "a part of the range is not mapped", covered, hole_end - covered);
}

Status MappingTable::check_serial(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) const noexcept {
  const std::uint64_t end = offset + size;
  auto at = mappings_.upper_bound(offset);
  if (at != mappings_.begin()) --at;
  std::uint64_t covered = offset;
  for (; at != mappings_.end() && covered < end && at->first <= covered && at->second.serial == serial; ++at) {
    covered = std::max(covered, end_of(*at));
  }
  if (covered >= end) return {};
  return Status::fail(Code::not_mapped, "the mapping was unmapped or moved", offset, size);
}

bool MappingTable::is_inside_one(std::uint64_t offset) const noexcept {
  const auto at = mappings_.lower_bound(offset);
  return at != mappings_.begin() && end_of(*std::prev(at)) > offset;
}

bool MappingTable::is_whole(std::uint64_t offset, std::uint64_t size) const noexcept {
  return !is_inside_one(offset) && !is_inside_one(offset + size);
}

void MappingTable::add(std::uint64_t offset, Mapping mapping) {
  TM_EXPECT(check_free(offset, mapping.size).ok());
  mappings_.emplace(offset, std::move(mapping));
}

void MappingTable::split_at(std::uint64_t offset) {
  auto at = mappings_.upper_bound(offset);
  if (at == mappings_.begin()) return;
  --at;
  const std::uint64_t into = offset - at->first;
  if (into == 0 || into >= at->second.size) return;
  Mapping upper = at->second;
  upper.size -= into;
  upper.physical_offset += into;
  mappings_.emplace_hint(std::next(at), offset, upper);
  at->second.size = into;
  upper.physical->repeat();
}

bool MappingTable::are_one(const Mappings::value_type& left, const Mappings::value_type& right) noexcept {
  const Mapping& a = left.second;
  const Mapping& b = right.second;
  return end_of(left) == right.first && a.serial == b.serial && a.physical == b.physical &&
         a.physical_offset + a.size == b.physical_offset && a.access == b.access;
}

void MappingTable::rejoin(std::uint64_t offset, std::uint64_t size) noexcept {
  auto at = mappings_.lower_bound(offset);
  if (at != mappings_.begin()) --at;
  while (at != mappings_.end() && at->first < offset + size) {
    const auto next = std::next(at);
    if (next == mappings_.end() || !are_one(*at, *next)) {
      at = next;
      continue;
    }
    at->second.size += next->second.size;
    next->second.physical->release();  // never the last: the left part holds one too
    mappings_.erase(next);
  }
}

bool MappingTable::next_of(std::uint64_t serial, std::uint64_t* offset, std::uint64_t* size) const noexcept {
  auto at = mappings_.upper_bound(*offset);
  if (at != mappings_.begin() && end_of(*std::prev(at)) > *offset) --at;
  while (at != mappings_.end() && at->second.serial != serial) ++at;
  if (at == mappings_.end()) return false;
  const std::uint64_t end = end_of(*at);
  *offset = std::max(*offset, at->first);
  *size = end - *offset;
  return true;
}

MappingTable::Mappings MappingTable::remove(std::uint64_t offset, std::uint64_t size) noexcept {
  Mappings removed;
  for (auto at = mappings_.lower_bound(offset); at != mappings_.end() && at->first < offset + size;) {
    const auto next = std::next(at);
    removed.insert(mappings_.extract(at));
    at = next;
  }
  return removed;
}

bool MappingTable::is_valid() const noexcept {
  std::uint64_t before = 0;
  for (const auto& [offset, mapping] : mappings_) {
    if (offset < before || mapping.size == 0 || mapping.physical == nullptr) return false;
    if (mapping.physical->mapping_count() == 0) return false;
    before = offset + mapping.size;
  }
  return true;
}

}  // namespace tensormem

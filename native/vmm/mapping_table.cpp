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
  std::uint64_t covered = offset;
  for (auto at = mappings_.find(offset); covered < offset + size; ++at, covered += std::prev(at)->second.size) {
    if (at == mappings_.end() || at->first != covered || at->second.serial != serial) {
      return Status::fail(Code::not_mapped, "the mapping was unmapped or moved", offset, size);
    }
  }
  return {};
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

void MappingTable::rejoin_at(std::uint64_t offset) noexcept {
  const auto upper = mappings_.find(offset);
  if (upper == mappings_.end() || upper == mappings_.begin()) return;
  const auto lower = std::prev(upper);
  const Mapping& left = lower->second;
  const Mapping& right = upper->second;
  const bool are_one = end_of(*lower) == offset && left.serial == right.serial && left.physical == right.physical &&
                       left.physical_offset + left.size == right.physical_offset && left.access == right.access;
  if (!are_one) return;
  lower->second.size += right.size;
  right.physical->release();
  mappings_.erase(upper);
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

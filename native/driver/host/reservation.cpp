#include "driver/host/reservation.hpp"

#include <iterator>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

std::uint64_t end_of(const Reservation::Pieces::value_type& entry) { return entry.first + entry.second.size; }

}  // namespace

bool Reservation::contains(std::uint64_t address, std::uint64_t size) const noexcept {
  return address >= address_ && range_within(address - address_, size, size_);
}

Status Reservation::check_free(std::uint64_t address, std::uint64_t size) const noexcept {
  auto at = pieces_.lower_bound(address);
  if (at != pieces_.begin() && end_of(*std::prev(at)) > address) --at;
  if (at == pieces_.end() || at->first >= address + size) return {};
  return Status::fail(Code::already_mapped, "the range overlaps a mapping", at->first - address_, at->second.size);
}

Status Reservation::check_mapped(std::uint64_t address, std::uint64_t size) const noexcept {
  const std::uint64_t end = address + size;
  auto at = pieces_.upper_bound(address);
  if (at != pieces_.begin()) --at;
  std::uint64_t covered = address;
  for (; at != pieces_.end() && covered < end && at->first <= covered; ++at) {
    if (end_of(*at) > covered) covered = end_of(*at);
  }
  if (covered >= end) return {};
  const std::uint64_t hole_end = at != pieces_.end() && at->first < end ? at->first : end;
  return Status::fail(Code::not_mapped, "a part of the range is not mapped", covered - address_, hole_end - covered);
}

void Reservation::add(std::uint64_t address, const std::vector<Piece>& pieces) {
  const auto behind = pieces_.lower_bound(address);
  for (const Piece& piece : pieces) {
    TM_EXPECT(check_free(address, piece.size).ok());
    pieces_.emplace_hint(behind, address, piece);
    address += piece.size;
  }
}

void Reservation::split_at(std::uint64_t address) {
  auto at = pieces_.upper_bound(address);
  if (at == pieces_.begin()) return;
  --at;
  const std::uint64_t into = address - at->first;
  if (into == 0 || into >= at->second.size) return;
  Piece right = at->second;
  right.size -= into;
  right.physical_offset += into;
  pieces_.emplace_hint(std::next(at), address, right);
  right.physical->mappings.fetch_add(1, std::memory_order_relaxed);
  at->second.size = into;
}

void Reservation::set_access(std::uint64_t address, std::uint64_t size, AccessFlags access) noexcept {
  for (auto at = pieces_.lower_bound(address); at != pieces_.end() && at->first < address + size; ++at) {
    TM_ASSERT(end_of(*at) <= address + size);
    at->second.access = access;
  }
}

Reservation::Pieces Reservation::remove(std::uint64_t address, std::uint64_t size) noexcept {
  Pieces removed;
  for (auto at = pieces_.lower_bound(address); at != pieces_.end() && at->first < address + size;) {
    TM_ASSERT(end_of(*at) <= address + size);
    const auto next = std::next(at);
    removed.insert(removed.end(), pieces_.extract(at));
    at = next;
  }
  return removed;
}

bool Reservation::are_one_piece(const Pieces::value_type& left, const Pieces::value_type& right) noexcept {
  return end_of(left) == right.first && left.second.physical == right.second.physical &&
         left.second.access == right.second.access &&
         left.second.physical_offset + left.second.size == right.second.physical_offset;
}

bool Reservation::are_one_area(const Pieces::value_type& left, const Pieces::value_type& right) noexcept {
  return end_of(left) == right.first && left.second.physical->file_id == right.second.physical->file_id &&
         left.second.access == right.second.access &&
         left.second.file_offset() + left.second.size == right.second.file_offset();
}

void Reservation::merge(std::uint64_t address, std::uint64_t size) noexcept {
  auto at = pieces_.lower_bound(address);
  if (at != pieces_.begin()) --at;
  while (at != pieces_.end() && at->first <= address + size) {
    const auto next = std::next(at);
    if (next == pieces_.end() || !are_one_piece(*at, *next)) {
      at = next;
      continue;
    }
    at->second.size += next->second.size;
    // Never the last mapping: the left part holds one too.
    next->second.physical->mappings.fetch_sub(1, std::memory_order_relaxed);
    pieces_.erase(next);
  }
}

std::uint64_t Reservation::boundaries(std::uint64_t address, std::uint64_t size) const noexcept {
  const std::uint64_t last = address + size;
  std::uint64_t count = 0;
  auto at = pieces_.lower_bound(address);
  if (at != pieces_.begin()) --at;
  for (; at != pieces_.end() && at->first <= last; ++at) {
    const bool joins_left = at != pieces_.begin() && are_one_area(*std::prev(at), *at);
    if (at->first >= address && at->first > address_ && !joins_left) ++count;
    const auto next = std::next(at);
    const bool touches_right = next != pieces_.end() && next->first == end_of(*at);  // counted as its start
    if (!touches_right && end_of(*at) >= address && end_of(*at) <= last && end_of(*at) < address_ + size_) ++count;
  }
  return count;
}

bool Reservation::is_edge(std::uint64_t address) const noexcept {
  return address == address_ || address == address_ + size_ || boundaries(address, 0) != 0;
}

std::uint64_t Reservation::possible_growth(std::uint64_t address, std::uint64_t size) const noexcept {
  return (is_edge(address) ? 0 : 1) + (is_edge(address + size) ? 0 : 1);
}

bool Reservation::is_valid() const noexcept {
  const std::uint64_t page = os::page_size();
  std::uint64_t before = address_;
  for (const auto& entry : pieces_) {
    const Piece& piece = entry.second;
    if (entry.first < before || piece.size == 0 || end_of(entry) > address_ + size_) return false;
    if (!is_aligned(entry.first | piece.size | piece.physical_offset, page)) return false;
    if (!range_within(piece.physical_offset, piece.size, piece.physical->size)) return false;
    if (piece.physical->mappings.load(std::memory_order_relaxed) == 0) return false;
    before = end_of(entry);
  }
  return true;
}

}  // namespace tensormem::host

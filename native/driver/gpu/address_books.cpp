#include "driver/gpu/address_books.hpp"

#include <iterator>

#include "base/align.hpp"

namespace tensormem::gpu {

Status AddressBooks::find(std::uint64_t address, std::uint64_t size, Reservations::const_iterator* found) const {
  auto at = reservations_.upper_bound(address);
  if (at != reservations_.begin()) {
    --at;
    if (!at->second.leaving && range_within(address - at->first, size, at->second.size)) {
      *found = at;
      return {};
    }
  }
  return Status::fail(Code::invalid_argument, "the range is not inside one reservation of this driver");
}

Status AddressBooks::begin_release(std::uint64_t address, std::uint64_t size) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size != size || found->second.leaving)
    return Status::fail(Code::invalid_argument, "no reservation has this address and size");
  if (!found->second.mappings.empty())
    return Status::fail(Code::still_mapped, "the reservation still has mappings", address,
                        found->second.mappings.size());
  found->second.leaving = true;
  return {};
}

void AddressBooks::cancel_release(std::uint64_t address) { reservations_[address].leaving = false; }

Status AddressBooks::begin_map(std::uint64_t address, std::uint64_t size) {
  Reservations::const_iterator home;
  TM_TRY(find(address, size, &home));
  const auto& mappings = home->second.mappings;
  auto at = mappings.lower_bound(address);
  if (at != mappings.begin() && std::prev(at)->first + std::prev(at)->second.size > address) --at;
  if (at != mappings.end() && at->first < address + size)
    return Status::fail(Code::already_mapped, "the range overlaps a mapping", at->first - home->first, at->second.size);
  reservations_[home->first].mappings.emplace(address, Mapping{size, true, 0});
  return {};
}

Status AddressBooks::check_mapped(std::uint64_t address, std::uint64_t size) const {
  Reservations::const_iterator home;
  if (size == 0) return Status::fail(Code::invalid_size, "the range is empty", size);
  TM_TRY(find(address, size, &home));
  const auto& mappings = home->second.mappings;
  std::uint64_t covered = address;
  for (auto at = mappings.find(address); at != mappings.end() && at->first == covered && covered < address + size;
       ++at) {
    if (at->second.changing)
      return Status::fail(Code::not_mapped, "another thread is mapping or unmapping it", at->first - home->first,
                          at->second.size);
    covered += at->second.size;
  }
  if (covered == address + size) return {};
  if (covered > address + size)
    return Status::fail(Code::invalid_argument, "a GPU's mapping is an atom: the range cuts one in two");
  // A range that begins inside a mapping is mapped there, but cannot be taken apart.
  auto before = mappings.upper_bound(covered);
  if (before != mappings.begin() && std::prev(before)->first + std::prev(before)->second.size > covered)
    return Status::fail(Code::invalid_argument, "a GPU's mapping is an atom: the range cuts one in two");
  const auto next = mappings.upper_bound(covered);
  const std::uint64_t hole_end = next != mappings.end() && next->first < address + size ? next->first : address + size;
  return Status::fail(Code::not_mapped, "a part of the range is not mapped", covered - home->first, hole_end - covered);
}

Status AddressBooks::begin_unmap(std::uint64_t address, std::uint64_t size) {
  TM_TRY(check_mapped(address, size));
  Reservations::const_iterator home;
  TM_TRY(find(address, size, &home));
  auto& mappings = reservations_[home->first].mappings;
  for (auto at = mappings.find(address); at != mappings.end() && at->first < address + size; ++at)
    at->second.changing = true;
  return {};
}

void AddressBooks::end_change(std::uint64_t address, std::uint64_t size, bool mapped) {
  Reservations::const_iterator home;
  if (!find(address, size, &home).ok()) return;
  auto& mappings = reservations_[home->first].mappings;
  const auto end = mappings.lower_bound(address + size);
  if (!mapped) {
    mappings.erase(mappings.lower_bound(address), end);
    return;
  }
  for (auto at = mappings.lower_bound(address); at != end; ++at) at->second.changing = false;
}

bool AddressBooks::begin_grant(std::uint64_t address, std::uint64_t size, std::int32_t device, std::uint64_t* start,
                               std::uint64_t* span) {
  Reservations::const_iterator home;
  if (size == 0 || !find(address, size, &home).ok()) return false;
  auto& mappings = reservations_[home->first].mappings;
  auto at = mappings.upper_bound(address);
  if (at == mappings.begin()) return false;
  const std::uint64_t bit = 1ULL << device;
  std::uint64_t covered = (--at)->first;
  bool is_new = false;
  *start = covered;
  for (auto each = at; each != mappings.end() && each->first < address + size; ++each) {
    if (each->second.changing || each->first != covered) return false;
    covered += each->second.size;
    is_new |= (each->second.told & bit) == 0;
  }
  if (!is_new || covered < address + size) return false;
  *span = covered - *start;
  note_access(*start, *span, device);
  return true;
}

void AddressBooks::note_access(std::uint64_t address, std::uint64_t size, std::int32_t device) {
  Reservations::const_iterator home;
  if (!find(address, size, &home).ok()) return;
  auto& mappings = reservations_[home->first].mappings;
  for (auto at = mappings.lower_bound(address); at != mappings.end() && at->first < address + size; ++at)
    at->second.told |= 1ULL << device;
}

}  // namespace tensormem::gpu

#include "driver/abstract/page_books.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <vector>

#include "base/align.hpp"

namespace tensormem::abstract {

namespace {

// Beyond what any processor translates, and far below what would overflow.
constexpr std::uint64_t kFirst = 1ULL << 58;
constexpr std::uint64_t kEnd = 1ULL << 59;

Status check_granularity(const char* what, std::uint64_t value) {
  if (is_aligned(value, PageBooks::kGranularity)) return {};
  return Status::fail(Code::invalid_alignment, what, value, PageBooks::kGranularity);
}

Status check_size(const char* nothing, std::uint64_t size) {
  if (size == 0) return Status::fail(Code::invalid_size, nothing, size);
  if (size > kNoOverflowLimit) return Status::fail(Code::invalid_size, "larger than any memory", size);
  return check_granularity("the size is not a multiple of the granularity", size);
}

Status check_range(std::uint64_t address, std::uint64_t size) {
  std::uint64_t end = 0;
  TM_TRY(check_size("the range is empty", size));
  TM_TRY(check_granularity("the address is not a multiple of the granularity", address));
  if (checked_add(address, size, &end)) return {};
  return Status::fail(Code::invalid_size, "the range reaches beyond the address space", size);
}

Status check_access(AccessFlags access) {
  const bool known = access == AccessFlags::none || access == AccessFlags::read || access == AccessFlags::read_write;
  return known ? Status() : Status::fail(Code::invalid_argument, "access is none, read or read_write");
}

Status check_pieces(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::uint64_t* size) {
  *size = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    TM_TRY(check_granularity("the physical offset is not a multiple of the granularity", pieces[i].physical_offset));
    TM_TRY(check_range(address, pieces[i].size));
    if (!checked_add(*size, pieces[i].size, size)) return Status::fail(Code::invalid_size, "too many pieces", count);
  }
  return check_range(address, *size);
}

Status no_memory_for_books() {
  return Status::fail(Code::out_of_memory, "no memory to note a mapping", sizeof(host::Piece));
}

}  // namespace

Status PageBooks::find(std::uint64_t address, std::uint64_t size, host::Reservation** reservation) noexcept {
  auto at = reservations_.upper_bound(address);
  if (at != reservations_.begin() && std::prev(at)->second.contains(address, size)) {
    *reservation = &std::prev(at)->second;
    return {};
  }
  return Status::fail(Code::invalid_argument, "the range is not inside one reservation of this driver");
}

Status PageBooks::find(PhysicalHandle handle, host::Physical** physical) noexcept {
  const auto found = physicals_.find(handle);
  if (found == physicals_.end() || found->second.state != host::Physical::State::live) {
    return Status::fail(Code::invalid_argument, "no such physical memory (destroyed, or not made by this driver)");
  }
  *physical = &found->second;
  return {};
}

// --- Addresses -----------------------------------------------------------------------------------------------------

// The first gap that is long enough.
bool PageBooks::find_room(std::uint64_t size, std::uint64_t alignment, std::uint64_t* start) const noexcept {
  std::uint64_t at = align_up(kFirst, alignment);
  for (const auto& [address, reservation] : reservations_) {
    if (at <= address && size <= address - at) break;
    at = std::max(at, align_up(address + reservation.size(), alignment));
  }
  *start = at;
  return at <= kEnd && size <= kEnd - at;
}

Status PageBooks::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) noexcept try {
  if (!is_power_of_two(alignment)) {
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two", alignment);
  }
  TM_TRY(check_size("no addresses asked for", size));
  const std::lock_guard lock(mutex_);
  std::uint64_t start = 0;
  if (!find_room(size, std::max(alignment, kGranularity), &start)) {
    return Status::fail(Code::out_of_virtual_memory, "no room for addresses of this size and alignment", size);
  }
  reservations_.emplace(start, host::Reservation(start, size));
  *address = start;
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status PageBooks::release(std::uint64_t address, std::uint64_t size) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size() != size) {
    return Status::fail(Code::invalid_argument, "no reservation has this address and size");
  }
  if (const auto count = found->second.pieces().size(); count != 0) {
    return Status::fail(Code::still_mapped, "the reservation still has mappings", address, count);
  }
  reservations_.erase(found);
  return {};
}

// --- Physical memory -----------------------------------------------------------------------------------------------

Status PageBooks::create(std::uint64_t size, PhysicalHandle* handle) noexcept try {
  TM_TRY(check_size("no bytes asked for", size));
  const std::lock_guard lock(mutex_);
  if (const std::uint64_t room = capacity_ - used_; size > room) {
    return Status::fail(Code::out_of_physical_memory, "the abstract memory is full", size, room);
  }
  host::Physical& physical = physicals_[next_handle_];
  physical.handle = next_handle_;
  physical.size = size;
  physical.file_id = next_handle_;
  physical.state = host::Physical::State::live;
  used_ += size;
  *handle = next_handle_++;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note physical memory", sizeof(host::Physical));
}

Status PageBooks::destroy(PhysicalHandle handle) noexcept {
  const std::lock_guard lock(mutex_);
  host::Physical* physical = nullptr;
  TM_TRY(find(handle, &physical));
  physical->state = host::Physical::State::destroyed;
  let_go(physical);
  return {};
}

// It is gone when neither its handle nor a mapping is left.
void PageBooks::let_go(host::Physical* physical) noexcept {
  if (physical->state != host::Physical::State::destroyed || physical->mappings.load() != 0) return;
  used_ -= physical->size;
  physicals_.erase(physicals_.find(physical->handle));
}

Status PageBooks::info(PhysicalHandle handle, PhysicalInfo* info) noexcept {
  const std::lock_guard lock(mutex_);
  host::Physical* physical = nullptr;
  TM_TRY(find(handle, &physical));
  *info = PhysicalInfo{};
  info->size = physical->size;
  return {};
}

// --- Mappings ------------------------------------------------------------------------------------------------------

Status PageBooks::map(std::uint64_t address, const MapPiece* asked, std::uint64_t count, AccessFlags access) noexcept
    try {
  std::uint64_t size = 0;
  TM_TRY(check_pieces(address, asked, count, &size));
  TM_TRY(check_access(access));
  std::vector<host::Piece> pieces;
  pieces.reserve(count);
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    host::Physical* physical = nullptr;
    TM_TRY(find(asked[i].physical, &physical));
    if (!range_within(asked[i].physical_offset, asked[i].size, physical->size)) {
      return Status::fail(Code::invalid_offset, "the range is not inside the physical memory", asked[i].physical_offset,
                          asked[i].size, physical->size);
    }
    pieces.push_back(host::Piece{asked[i].size, physical, asked[i].physical_offset, access});
  }
  host::Reservation* reservation = nullptr;
  TM_TRY(find(address, size, &reservation));
  TM_TRY(reservation->check_free(address, size));
  try {
    reservation->add(address, pieces);
  } catch (const std::bad_alloc&) {
    (void)reservation->remove(address, size);
    throw;
  }
  for (const host::Piece& piece : pieces) piece.physical->mappings += 1;
  reservation->merge(address, size);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status PageBooks::cut_out(std::uint64_t address, std::uint64_t size, host::Reservation** reservation) {
  TM_TRY(find(address, size, reservation));
  TM_TRY((*reservation)->check_mapped(address, size));
  (*reservation)->split_at(address);
  (*reservation)->split_at(address + size);
  return {};
}

Status PageBooks::unmap(std::uint64_t address, std::uint64_t size) noexcept try {
  TM_TRY(check_range(address, size));
  const std::lock_guard lock(mutex_);
  host::Reservation* reservation = nullptr;
  TM_TRY(cut_out(address, size, &reservation));
  for (const auto& [start, piece] : reservation->remove(address, size)) {
    piece.physical->mappings -= 1;
    let_go(piece.physical);
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status PageBooks::set_access(std::uint64_t address, std::uint64_t size, AccessFlags access) noexcept try {
  TM_TRY(check_range(address, size));
  TM_TRY(check_access(access));
  const std::lock_guard lock(mutex_);
  host::Reservation* reservation = nullptr;
  TM_TRY(cut_out(address, size, &reservation));
  reservation->set_access(address, size, access);
  reservation->merge(address, size);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// --- Looking -------------------------------------------------------------------------------------------------------

std::uint64_t PageBooks::used_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool PageBooks::is_empty() const noexcept {
  const std::lock_guard lock(mutex_);
  return reservations_.empty() && physicals_.empty() && used_ == 0;
}

bool PageBooks::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t before = kFirst;
  std::uint64_t mappings = 0;
  for (const auto& [address, reservation] : reservations_) {
    if (address < before || !reservation.is_valid()) return false;
    before = address + reservation.size();
    mappings += reservation.pieces().size();
  }
  std::uint64_t used = 0;
  for (const auto& [handle, physical] : physicals_) {
    used += physical.size;
    mappings -= physical.mappings.load();
  }
  return before <= kEnd && mappings == 0 && used == used_ && used_ <= capacity_;
}

}  // namespace tensormem::abstract

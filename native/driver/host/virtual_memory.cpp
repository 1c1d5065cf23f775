#include "driver/host/virtual_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/host/aligned_range.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

// A reservation, and the two ends that are cut off to align it.
constexpr std::uint64_t kAreasToReserve = 3;

Status check_granularity(const char* what, std::uint64_t value) {
  if (is_aligned(value, os::page_size())) return {};
  return Status::fail(Code::invalid_alignment, what, value, os::page_size());
}

Status check_range(std::uint64_t address, std::uint64_t size) {
  std::uint64_t end = 0;
  if (size == 0) return Status::fail(Code::invalid_size, "the range is empty", size);
  TM_TRY(check_granularity("the address is not a multiple of the granularity", address));
  TM_TRY(check_granularity("the size is not a multiple of the granularity", size));
  if (!checked_add(address, size, &end)) {
    return Status::fail(Code::invalid_size, "the range reaches beyond the address space", size);
  }
  return {};
}

os::Protection protection_of(AccessFlags access) {
  switch (access) {
    case AccessFlags::none:
      return os::Protection::none;
    case AccessFlags::read:
      return os::Protection::read;
    case AccessFlags::read_write:
      return os::Protection::read_write;
  }
  return os::Protection::none;
}

Status no_memory_for_books() { return Status::fail(Code::out_of_memory, "no memory to note a mapping", sizeof(Piece)); }

Status no_writing() { return Status::fail(Code::invalid_argument, "the imported memory does not allow writing"); }

Status check_access(AccessFlags access) {
  const bool known = access == AccessFlags::none || access == AccessFlags::read || access == AccessFlags::read_write;
  return known ? Status() : Status::fail(Code::invalid_argument, "access is none, read or read_write");
}

bool are_neighbours(const Piece& left, const Piece& right) {
  return left.physical->file_id == right.physical->file_id && left.file_offset() + left.size == right.file_offset();
}

// Tells the budget what happened to the areas around a range between two moments.
class AreaWatch {
 public:
  AreaWatch(VmaBudget& budget, const Reservation& reservation, std::uint64_t address, std::uint64_t size) noexcept
      : budget_(budget), reservation_(reservation), address_(address), size_(size), before_(count()) {}
  ~AreaWatch() { budget_.changed(static_cast<std::int64_t>(count()) - static_cast<std::int64_t>(before_)); }
  AreaWatch(const AreaWatch&) = delete;
  AreaWatch& operator=(const AreaWatch&) = delete;

 private:
  std::uint64_t count() const noexcept { return reservation_.boundaries(address_, size_); }
  VmaBudget& budget_;
  const Reservation& reservation_;
  std::uint64_t address_;
  std::uint64_t size_;
  std::uint64_t before_;
};

}  // namespace

Status VirtualMemory::refused(int error, const char* call) noexcept {
  if (error == ENOMEM && budget_.is_exhausted()) return budget_.refusal();
  return Status::driver_error(error, call);
}

Status VirtualMemory::find(std::uint64_t address, std::uint64_t size, Reservation** reservation) noexcept {
  auto at = reservations_.upper_bound(address);
  if (at != reservations_.begin() && std::prev(at)->second.contains(address, size)) {
    *reservation = &std::prev(at)->second;
    return {};
  }
  return Status::fail(Code::invalid_argument, "the range is not inside one reservation of this driver");
}

// --- Reserve and release -----------------------------------------------------------------------------------------

Status VirtualMemory::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) noexcept try {
  if (size == 0 || size > kNoOverflowLimit) {
    return Status::fail(Code::invalid_size, size == 0 ? "no addresses asked for" : "larger than any address space",
                        size);
  }
  if (!is_power_of_two(alignment)) {
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two", alignment);
  }
  TM_TRY(check_granularity("the size is not a multiple of the granularity", size));
  // A huge page needs its address to be a multiple of its size.
  const std::uint64_t least = size >= kHugePageBytes ? kHugePageBytes : os::page_size();
  const std::lock_guard lock(mutex_);
  TM_TRY(budget_.admit(kAreasToReserve));
  std::uint64_t start = 0;
  if (const int error = reserve_aligned(size, std::max(alignment, least), &start); error != 0) {
    if (error != ENOMEM || budget_.is_exhausted()) return refused(error, "mmap");
    return Status::fail(Code::out_of_virtual_memory, "no room for addresses of this size and alignment", size);
  }
  try {
    reservations_.emplace(start, Reservation(start, size));
  } catch (const std::bad_alloc&) {
    (void)os::unmap(start, size);
    throw;
  }
  budget_.changed(1);
  *address = start;
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status VirtualMemory::release(std::uint64_t address, std::uint64_t size) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size() != size) {
    return Status::fail(Code::invalid_argument, "no reservation has this address and size");
  }
  if (!found->second.pieces().empty()) {
    return Status::fail(Code::still_mapped, "the reservation still has mappings", address,
                        found->second.pieces().size());
  }
  if (const int error = os::unmap(address, size); error != 0) return refused(error, "munmap");
  reservations_.erase(found);
  budget_.changed(-1);
  return {};
}

// --- Map and unmap -----------------------------------------------------------------------------------------------

Status VirtualMemory::map(std::uint64_t address, const MapPiece* asked, std::uint64_t count,
                          AccessFlags access) noexcept try {
  std::uint64_t size = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    TM_TRY(check_granularity("the physical offset is not a multiple of the granularity", asked[i].physical_offset));
    TM_TRY(check_range(address, asked[i].size));
    if (!checked_add(size, asked[i].size, &size)) return Status::fail(Code::invalid_size, "too many pieces", count);
  }
  TM_TRY(check_range(address, size));
  TM_TRY(check_access(access));
  std::vector<Piece> pieces;
  pieces.reserve(count);
  Status status = acquire(asked, count, access, &pieces);
  if (status.ok()) {
    const std::lock_guard lock(mutex_);
    Reservation* reservation = nullptr;
    status = find(address, size, &reservation);
    if (status.ok()) status = reservation->check_free(address, size);
    if (status.ok()) status = add_pieces(*reservation, address, size, pieces);
  }
  if (!status.ok()) {
    for (const Piece& piece : pieces) physicals_.release(piece.physical);
  }
  return status;
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// What was acquired is in `pieces`, also on failure.
Status VirtualMemory::acquire(const MapPiece* asked, std::uint64_t count, AccessFlags access,
                              std::vector<Piece>* pieces) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const MapPiece& part = asked[i];
    Physical* physical = nullptr;
    TM_TRY(physicals_.acquire(part.physical, &physical));
    pieces->push_back(Piece{part.size, physical, part.physical_offset, access});
    if (!range_within(part.physical_offset, part.size, physical->size)) {
      return Status::fail(Code::invalid_offset, "the range is not inside the physical memory", part.physical_offset,
                          part.size, physical->size);
    }
  }
  return {};
}

Status VirtualMemory::add_pieces(Reservation& reservation, std::uint64_t address, std::uint64_t size,
                                 const std::vector<Piece>& pieces) noexcept {
  std::uint64_t seams = 0;
  for (std::uint64_t i = 1; i < pieces.size(); ++i) seams += are_neighbours(pieces[i - 1], pieces[i]) ? 0 : 1;
  TM_TRY(budget_.admit(reservation.possible_growth(address, size) + seams));
  const AreaWatch watch(budget_, reservation, address, size);
  try {
    reservation.add(address, pieces);
  } catch (const std::bad_alloc&) {
    reservation.remove(address, size);
    return no_memory_for_books();
  }
  const int error = map_neighbours(address, pieces);
  if (error == 0) {
    reservation.merge(address, size);
    return {};
  }
  reservation.remove(address, size);
  // A kernel may have taken the reservation away before it failed; its addresses must stay ours.
  (void)os::reserve_over(address, size);
  if (error == EACCES) return no_writing();
  return refused(error, "mmap");
}

int VirtualMemory::map_neighbours(std::uint64_t address, const std::vector<Piece>& pieces) noexcept {
  for (std::uint64_t first = 0; first < pieces.size();) {
    std::uint64_t size = pieces[first].size;
    std::uint64_t next = first + 1;
    for (; next < pieces.size() && are_neighbours(pieces[next - 1], pieces[next]); ++next) size += pieces[next].size;
    const Piece& piece = pieces[first];
    const int error =
        os::map_file_over(address, size, piece.physical->fd, piece.file_offset(), protection_of(piece.access));
    if (error != 0) return error;
    address += size;
    first = next;
  }
  return 0;
}

Status VirtualMemory::unmap(std::uint64_t address, std::uint64_t size) noexcept {
  TM_TRY(check_range(address, size));
  Reservation::Pieces removed;
  {
    const std::lock_guard lock(mutex_);
    Reservation* reservation = nullptr;
    TM_TRY(find(address, size, &reservation));
    TM_TRY(reservation->check_mapped(address, size));
    TM_TRY(take_out(*reservation, address, size, &removed));
  }
  for (const auto& [start, piece] : removed) physicals_.release(piece.physical);
  return {};
}

// A process that has all the areas it may have gets no new one, not even in place of an old one. Areas that nobody can
// touch serve as well: what is mapped there next replaces them, and so does the release of the reservation.
int VirtualMemory::close_off(std::uint64_t address, std::uint64_t size) noexcept {
  const int error = os::reserve_over(address, size);
  if (error != ENOMEM || !budget_.is_exhausted()) return error;
  return os::protect(address, size, os::Protection::none);
}

Status VirtualMemory::take_out(Reservation& reservation, std::uint64_t address, std::uint64_t size,
                               Reservation::Pieces* removed) noexcept try {
  TM_TRY(budget_.admit_last(reservation.possible_growth(address, size)));
  reservation.split_at(address);
  reservation.split_at(address + size);
  const AreaWatch watch(budget_, reservation, address, size);
  if (const int error = close_off(address, size); error != 0) {
    reservation.merge(address, size);
    return refused(error, "mmap");
  }
  *removed = reservation.remove(address, size);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// --- Access ------------------------------------------------------------------------------------------------------

Status VirtualMemory::set_access(std::uint64_t address, std::uint64_t size, AccessFlags access) noexcept {
  TM_TRY(check_range(address, size));
  TM_TRY(check_access(access));
  const std::lock_guard lock(mutex_);
  Reservation* reservation = nullptr;
  TM_TRY(find(address, size, &reservation));
  TM_TRY(reservation->check_mapped(address, size));
  return change_access(*reservation, address, size, access);
}

Status VirtualMemory::change_access(Reservation& reservation, std::uint64_t address, std::uint64_t size,
                                    AccessFlags access) noexcept try {
  TM_TRY(budget_.admit(reservation.possible_growth(address, size)));
  reservation.split_at(address);
  reservation.split_at(address + size);
  bool is_ours = true;
  reservation.for_each(address, size,
                       [&](std::uint64_t, const Piece& piece) { is_ours = is_ours && !piece.physical->from_parent; });
  if (!is_ours) {
    reservation.merge(address, size);
    return Status::fail(Code::invalid_argument, "the mapping was made before a fork and belongs to the parent");
  }
  const AreaWatch watch(budget_, reservation, address, size);
  if (const int error = os::protect(address, size, protection_of(access)); error != 0) {
    // A call over several areas may have stopped half way.
    reservation.for_each(address, size, [](std::uint64_t start, const Piece& piece) {
      (void)os::protect(start, piece.size, protection_of(piece.access));
    });
    reservation.merge(address, size);
    if (error == EACCES) return no_writing();
    return refused(error, "mprotect");
  }
  reservation.set_access(address, size, access);
  reservation.merge(address, size);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// --- Looking -----------------------------------------------------------------------------------------------------

std::uint64_t VirtualMemory::reservation_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return reservations_.size();
}

std::uint64_t VirtualMemory::mapping_count() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  for (const auto& [address, reservation] : reservations_) count += reservation.pieces().size();
  return count;
}

std::uint64_t VirtualMemory::area_count() noexcept {
  const std::lock_guard lock(mutex_);
  return budget_.current();
}

std::uint64_t VirtualMemory::area_limit() noexcept {
  const std::lock_guard lock(mutex_);
  return budget_.limit();
}

bool VirtualMemory::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::int64_t areas = 0;
  std::uint64_t before = 0;
  for (const auto& [address, reservation] : reservations_) {
    if (address < before || !reservation.is_valid()) return false;
    before = address + reservation.size();
    areas += 1 + static_cast<std::int64_t>(reservation.boundaries(address, reservation.size()));
  }
  return areas == budget_.ours();
}

void VirtualMemory::after_fork_in_child() noexcept {
  for (const auto& [address, reservation] : reservations_) {
    if (!reservation.pieces().empty()) (void)os::reserve_over(address, reservation.size());
  }
  mutex_.unlock();
}

}  // namespace tensormem::host

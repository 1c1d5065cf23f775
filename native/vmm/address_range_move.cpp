// Owns: moving mappings by remapping them, within one range or to another one.
#include <mutex>

#include "trace/inside.hpp"
#include "trace/reports.hpp"
#include "vmm/address_range.hpp"

namespace tensormem {

Status AddressRange::move(std::uint64_t offset, std::uint64_t size, std::uint64_t serial, AddressRange& target,
                          std::uint64_t new_offset, std::uint64_t* new_serial) noexcept {
  std::unique_lock mine(mutex_, std::defer_lock);
  std::unique_lock theirs(target.mutex_, std::defer_lock);
  if (&target == this) {
    mine.lock();
  } else {
    std::lock(mine, theirs);
  }
  TM_TRY(check_open());
  TM_TRY(target.check_open());
  TM_TRY(table_.check_serial(offset, size, serial));
  TM_TRY(check_whole(offset, size));
  TM_TRY(target.check_range(new_offset, size));
  TM_TRY(target.table_.check_free(new_offset, size));
  const std::uint64_t fresh = take_serial();
  Status status = split(offset, size);
  {
    const TraceInside inside;  // seen from outside it is a move
    if (status.ok()) status = target.receive(*this, offset, size, new_offset, fresh);
    if (status.ok()) {
      status = unmap_locked(offset, size);
      if (!status.ok()) target.send_back(new_offset, size);
    }
  }
  if (status.ok()) {
    *new_serial = fresh;
    report_move(target.id_, target.base_ + new_offset, size, base_ + offset);
  } else {
    rejoin(offset, size);
  }
  return status;
}

void AddressRange::send_back(std::uint64_t offset, std::uint64_t size) noexcept {
  // Refused as well, both places show the pages, and the books say so.
  (void)unmap_locked(offset, size).ok();
}

// Maps what `source` has in the range, which is split at both ends, at `to`. All of it or nothing.
Status AddressRange::receive(AddressRange& source, std::uint64_t from, std::uint64_t size, std::uint64_t to,
                             std::uint64_t serial) noexcept {
  Status status;
  std::uint64_t done = 0;
  while (status.ok() && done < size) {
    const Mapping& moving = source.table_.all().find(from + done)->second;
    const std::uint64_t piece = moving.size;
    status = receive_one(moving, to + done, serial);
    if (status.ok()) done += piece;
  }
  if (!status.ok() && done != 0) send_back(to, done);
  return status;
}

Status AddressRange::receive_one(const Mapping& moving, std::uint64_t offset, std::uint64_t serial) noexcept {
  const Mapping copy = moving;  // adding to the table it is in moves nothing, but this is easier to trust
  copy.physical->repeat();      // also when it was closed: this is no new mapping, it is an old one elsewhere
  TM_TRY(note(MapRequest{copy.physical, offset, copy.physical_offset, copy.size}, serial, copy.access));
  Status status = map_noted(offset, copy);
  if (!status.ok()) {
    forget(offset, copy.size);
    return status;
  }
  report_map(id_, base_ + offset, copy.size, 1);
  status = restore_access(offset, copy);
  if (!status.ok()) send_back(offset, copy.size);
  return status;
}

}  // namespace tensormem

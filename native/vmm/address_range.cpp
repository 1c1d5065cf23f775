#include "vmm/address_range.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/memory_space.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

Status no_memory_for_books() {
  return Status::fail(Code::out_of_memory, "no memory to note a mapping", sizeof(Mapping));
}

Status check_device(std::int32_t device) {
  if (AccessSet::covers(device)) return {};
  return Status::fail(Code::invalid_argument, "no such device (access is kept for devices 0 to 31)");
}

}  // namespace

AddressRange::AddressRange(Driver& driver, std::uint64_t base, std::uint64_t size, std::uint64_t alignment,
                           const MappingRules& rules, std::shared_ptr<VmmCounters> counters)
    : driver_(driver),
      id_(add_reporter(0, "address range", text_of(space_of(driver, driver.home())))),
      base_(base),
      size_(size),
      alignment_(alignment),
      rules_(rules),
      counters_(std::move(counters)) {
  counters_->ranges += 1;
  counters_->reserved_bytes += size_;
}

// A driver that refuses twice keeps the addresses, and the pages behind them; nobody else is given either.
AddressRange::~AddressRange() {
  TM_WALK(is_valid());
  if (!close().ok() && !close().ok()) forget(0, size_);
  remove_reporter(id_);
}

std::uint64_t AddressRange::take_serial() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

// --- Checks ------------------------------------------------------------------------------------------------------

bool AddressRange::is_released() const noexcept {
  const std::lock_guard lock(mutex_);
  return released_;
}

Status AddressRange::check_open() const noexcept {
  if (!released_) return {};
  return Status::fail(Code::use_after_release, "the addresses were released", base_);
}

Status AddressRange::check_range(std::uint64_t offset, std::uint64_t size) const noexcept {
  if (offset >= size_) {
    return Status::fail(Code::invalid_offset, "it begins outside the range", offset, size, size_);
  }
  if (size == 0) return Status::fail(Code::invalid_size, "the range is empty", size);
  if (!range_within(offset, size, size_)) {
    return Status::fail(Code::invalid_offset, "it ends outside the range", offset, size, size_);
  }
  if (!is_aligned(offset, rules_.granularity)) {
    return Status::fail(Code::invalid_offset, "the offset is not a multiple of the granularity", offset, size, size_);
  }
  if (!is_aligned(size, rules_.granularity)) {
    return Status::fail(Code::invalid_size, "the size is not a multiple of the granularity", size);
  }
  return {};
}

Status AddressRange::check_request(const MapRequest& request) const noexcept {
  const PhysicalAllocation& physical = *request.physical;
  if (!is_aligned(request.physical_offset, rules_.granularity)) {
    return Status::fail(Code::invalid_offset, "the physical offset is not a multiple of the granularity",
                        request.physical_offset, request.size, physical.size());
  }
  TM_TRY(check_range(request.offset, request.size));
  if (!range_within(request.physical_offset, request.size, physical.size())) {
    return Status::fail(Code::invalid_offset, "the pages end outside the physical memory", request.physical_offset,
                        request.size, physical.size());
  }
  if (rules_.whole_handles && (request.physical_offset != 0 || request.size != physical.size())) {
    return Status::fail(Code::not_supported, "this driver maps physical memory whole and from 0");
  }
  if (&physical.driver() != &driver_) {
    return Status::fail(Code::invalid_argument, "the physical memory is of another driver than the addresses");
  }
  return {};
}

Status AddressRange::check_whole(std::uint64_t offset, std::uint64_t size) const noexcept {
  if (!rules_.whole_handles || table_.is_whole(offset, size)) return {};
  return Status::fail(Code::not_supported, "this driver changes mappings whole: take all of each");
}

// --- Map -----------------------------------------------------------------------------------------------------------

// The caller holds a mapping of the physical memory for it; it is let go if it cannot be noted.
Status AddressRange::note(const MapRequest& request, std::uint64_t serial, const AccessSet& access) noexcept {
  try {
    table_.add(request.offset, Mapping{request.size, request.physical, request.physical_offset, serial, access});
  } catch (const std::bad_alloc&) {
    request.physical->release();
    return no_memory_for_books();
  }
  counters_->mappings += 1;
  counters_->mapped_bytes += request.size;
  return {};
}

void AddressRange::forget(std::uint64_t offset, std::uint64_t size) noexcept {
  for (const auto& [at, mapping] : table_.remove(offset, size)) {
    counters_->mappings -= 1;
    counters_->mapped_bytes -= mapping.size;
    mapping.physical->release();
  }
}

// With its access for the first device that has any; `restore_access` gives it to the others.
Status AddressRange::map_noted(std::uint64_t offset, const Mapping& mapping) noexcept {
  const MapPiece piece{mapping.physical->handle(), mapping.physical_offset, mapping.size};
  const std::int32_t device = mapping.access.first_device();
  return driver_.map_run(base_ + offset, &piece, 1, device, mapping.access.of(device));
}

Status AddressRange::map(const std::vector<MapRequest>& requests, std::int32_t device, AccessFlags access,
                         std::uint64_t* serial) noexcept {
  TM_TRY(check_device(device));
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  for (const MapRequest& request : requests) TM_TRY(check_request(request));
  const std::uint64_t fresh = take_serial();
  AccessSet granted;
  granted.set(device, access);
  std::size_t noted = 0;
  std::size_t mapped = 0;
  Status status;
  for (; noted < requests.size() && status.ok(); noted += status.ok() ? 1 : 0) {
    status = table_.check_free(requests[noted].offset, requests[noted].size);
    if (status.ok()) status = requests[noted].physical->acquire();
    if (status.ok()) status = note(requests[noted], fresh, granted);
  }
  if (status.ok()) status = map_all(requests, device, access, &mapped);
  if (status.ok()) {
    *serial = fresh;
    for (const MapRequest& request : requests) report_map(id_, base_ + request.offset, request.size, 1);
    return {};
  }
  undo_map(requests, noted, mapped);
  return status;
}

// The last one first, so that no step back needs more memory areas than the steps forth had.
void AddressRange::undo_map(const std::vector<MapRequest>& requests, std::size_t noted, std::size_t mapped) noexcept {
  for (std::size_t i = noted; i-- > 0;) {
    const MapRequest& request = requests[i];
    // What the driver will not take back stays noted, because it is there.
    if (i < mapped && !driver_.unmap(base_ + request.offset, request.size).ok()) continue;
    forget(request.offset, request.size);
  }
}

Status AddressRange::map_all(const std::vector<MapRequest>& requests, std::int32_t device, AccessFlags access,
                             std::size_t* done) noexcept try {
  std::vector<MapPiece> pieces;
  pieces.reserve(requests.size());
  while (*done < requests.size()) {
    // Neighbours in one call.
    const std::uint64_t offset = requests[*done].offset;
    std::uint64_t size = 0;
    pieces.clear();
    for (std::size_t i = *done; i < requests.size() && requests[i].offset == offset + size; ++i) {
      pieces.push_back(MapPiece{requests[i].physical->handle(), requests[i].physical_offset, requests[i].size});
      size += requests[i].size;
    }
    TM_TRY(driver_.map_run(base_ + offset, pieces.data(), pieces.size(), device, access));
    *done += pieces.size();
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// --- Unmap ---------------------------------------------------------------------------------------------------------

Status AddressRange::unmap(std::uint64_t offset, std::uint64_t size) noexcept {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  TM_TRY(check_range(offset, size));
  return unmap_locked(offset, size);
}

Status AddressRange::unmap_serial(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) noexcept {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  TM_TRY(table_.check_serial(offset, size, serial));
  return unmap_locked(offset, size);
}

// A part of it may be gone, and all of the addresses.
Status AddressRange::unmap_rest(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) noexcept {
  const std::lock_guard lock(mutex_);
  if (released_) return {};
  for (std::uint64_t at = offset; at < offset + size;) {
    std::uint64_t part = 0;
    if (!table_.next_of(serial, &at, &part) || at >= offset + size) return {};
    part = std::min(part, offset + size - at);
    TM_TRY(unmap_locked(at, part));
    at += part;
  }
  return {};
}

Status AddressRange::unmap_locked(std::uint64_t offset, std::uint64_t size) noexcept {
  TM_TRY(table_.check_mapped(offset, size));
  TM_TRY(check_whole(offset, size));
  Status status = split(offset, size);
  if (status.ok()) status = unmap_pieces(offset, size);
  if (status.ok()) {
    forget(offset, size);
    report_unmap(id_, base_ + offset, size);
    return {};
  }
  rejoin(offset, size);
  return status;
}

Status AddressRange::split(std::uint64_t offset, std::uint64_t size) noexcept {
  Status status;
  const std::uint64_t before = table_.all().size();
  try {
    table_.split_at(offset);
    table_.split_at(offset + size);
  } catch (const std::bad_alloc&) {
    status = no_memory_for_books();
  }
  counters_->mappings += table_.all().size() - before;
  return status;
}

void AddressRange::rejoin(std::uint64_t offset, std::uint64_t size) noexcept {
  const std::uint64_t split = table_.all().size();
  table_.rejoin(offset, size);
  counters_->mappings -= split - table_.all().size();
}

// One call where the driver can; otherwise one for each mapping, and those that are gone are put back on failure.
Status AddressRange::unmap_pieces(std::uint64_t offset, std::uint64_t size) noexcept {
  if (!rules_.whole_handles) return driver_.unmap(base_ + offset, size);
  Status status;
  std::uint64_t done = offset;
  table_.for_each(offset, size, [&](std::uint64_t at, Mapping& mapping) {
    if (!status.ok()) return;
    status = driver_.unmap(base_ + at, mapping.size);
    if (status.ok()) done = at + mapping.size;
  });
  if (status.ok()) return {};
  put_back(offset, done);
  return status;
}

// What the driver will not take again is gone, and the books say so.
void AddressRange::put_back(std::uint64_t offset, std::uint64_t end) noexcept {
  while (offset < end) {
    const Mapping& mapping = table_.all().find(offset)->second;
    const std::uint64_t next = offset + mapping.size;
    const bool is_mapped = map_noted(offset, mapping).ok();
    if (is_mapped && !restore_access(offset, mapping).ok()) table_.forget_access(offset);
    if (!is_mapped) forget(offset, next - offset);
    offset = next;
  }
}

Status AddressRange::restore_access(std::uint64_t offset, const Mapping& mapping) noexcept {
  for (std::int32_t device = mapping.access.first_device() + 1; device < AccessSet::kMaxDevices; ++device) {
    const AccessFlags access = mapping.access.of(device);
    if (access == AccessFlags::none) continue;
    TM_TRY(driver_.set_access(base_ + offset, mapping.size, device, access));
  }
  return {};
}

// --- Access --------------------------------------------------------------------------------------------------------

Status AddressRange::set_access(std::uint64_t offset, std::uint64_t size, std::int32_t device,
                                AccessFlags access) noexcept {
  TM_TRY(check_device(device));
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  TM_TRY(check_range(offset, size));
  TM_TRY(table_.check_mapped(offset, size));
  TM_TRY(check_whole(offset, size));
  Status status = split(offset, size);
  if (status.ok()) status = driver_.set_access(base_ + offset, size, device, access);
  if (status.ok()) {
    table_.for_each(offset, size, [&](std::uint64_t, Mapping& mapping) { mapping.access.set(device, access); });
  }
  rejoin(offset, size);
  return status;
}

Status AddressRange::get_access(std::uint64_t offset, std::uint64_t size, std::int32_t device,
                                AccessFlags* access) const noexcept {
  TM_TRY(check_device(device));
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  TM_TRY(check_range(offset, size));
  TM_TRY(table_.check_mapped(offset, size));
  AccessFlags least = AccessFlags::read_write;
  auto at = std::prev(table_.all().upper_bound(offset));
  for (; at != table_.all().end() && at->first < offset + size; ++at) {
    least = std::min(least, at->second.access.of(device));
  }
  *access = least;
  return {};
}

// --- The end -------------------------------------------------------------------------------------------------------

Status AddressRange::release_locked() noexcept {
  TM_TRY(driver_.release(base_, size_));
  released_ = true;
  counters_->ranges -= 1;
  counters_->reserved_bytes -= size_;
  return {};
}

Status AddressRange::release() noexcept {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  if (!table_.empty()) {
    return Status::fail(Code::still_mapped, "the range still has mappings", base_, table_.all().size());
  }
  return release_locked();
}

Status AddressRange::unmap_all() noexcept {
  const std::lock_guard lock(mutex_);
  return unmap_all_locked();
}

Status AddressRange::unmap_all_locked() noexcept {
  while (!table_.empty()) {
    // The longest run of neighbours, so that it is one call.
    const auto first = table_.all().begin();
    std::uint64_t end = first->first;
    for (auto at = first; at != table_.all().end() && at->first == end; ++at) end += at->second.size;
    TM_TRY(unmap_locked(first->first, end - first->first));
  }
  return {};
}

Status AddressRange::close() noexcept {
  const std::lock_guard lock(mutex_);
  if (released_) return {};
  TM_TRY(unmap_all_locked());
  return release_locked();
}

// --- Looking -------------------------------------------------------------------------------------------------------

bool AddressRange::is_mapped(std::uint64_t offset, std::uint64_t size) const noexcept {
  const std::lock_guard lock(mutex_);
  return !released_ && size != 0 && range_within(offset, size, size_) && table_.check_mapped(offset, size).ok();
}

Status AddressRange::is_current(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) const noexcept {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  return table_.check_serial(offset, size, serial);
}

MappingTable::Mappings AddressRange::mappings() const {
  const std::lock_guard lock(mutex_);
  return table_.all();
}

bool AddressRange::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  if (!table_.is_valid() || (released_ && !table_.empty())) return false;
  return table_.empty() || std::prev(table_.all().end())->first + std::prev(table_.all().end())->second.size <= size_;
}

}  // namespace tensormem

#include "core/virtual_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "core/descriptors.hpp"
#include "core/machine.hpp"

namespace simgpu {

bool VirtualMemory::is_whole(std::uint64_t value) const { return value % machine_.config.granularity == 0; }

VirtualMemory::~VirtualMemory() {
  for (const auto& [handle, physical] : physicals_) ::close(physical->fd);
}

Window* VirtualMemory::find_reservation(std::uint64_t address, std::uint64_t size) {
  auto at = reservations_.upper_bound(address);
  if (at == reservations_.begin()) return nullptr;
  Window* window = std::prev(at)->second.get();
  const std::uint64_t offset = address - window->start();
  return offset <= window->size() && size <= window->size() - offset ? window : nullptr;
}

Result VirtualMemory::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) {
  if (size == 0 || !is_whole(size) || (alignment & (alignment - 1)) != 0) return kInvalidValue;
  auto window = std::make_unique<Window>();
  if (window->open(size, std::max(alignment, machine_.config.granularity), false) != 0) return kOutOfMemory;
  *address = window->start();
  machine_.memory.add_window(*window);
  reservations_.emplace(window->start(), std::move(window));
  return kSuccess;
}

Result VirtualMemory::release(std::uint64_t address, std::uint64_t size) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second->size() != size) return kInvalidValue;
  if (machine_.memory.overlaps(address, size)) return kInvalidValue;
  machine_.memory.remove_window(*found->second);
  reservations_.erase(found);
  return kSuccess;
}

Result VirtualMemory::create(Device& device, std::uint64_t size, int handle_types, std::uint64_t* handle) {
  if (size == 0 || !is_whole(size)) return kInvalidValue;
  if (device.total - device.used < size) return kOutOfMemory;
  const int fd = memfd_create("tensormem-simgpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) {
    if (fd >= 0) ::close(fd);
    return kOperatingSystem;
  }
  device.used += size;
  auto physical = std::make_unique<Physical>();
  physical->handle = ++next_handle_;
  physical->device = &device;
  physical->size = size;
  physical->handle_types = handle_types;
  physical->fd = fd;
  physical->references = 1;
  *handle = physical->handle;
  physicals_.emplace(physical->handle, std::move(physical));
  return kSuccess;
}

Result VirtualMemory::find(std::uint64_t handle, Physical** physical) {
  const auto found = physicals_.find(handle);
  if (found == physicals_.end() || found->second->references == 0) return kInvalidValue;
  *physical = found->second.get();
  return kSuccess;
}

Result VirtualMemory::destroy(std::uint64_t handle) {
  Physical* physical = nullptr;
  SIM_TRY(find(handle, &physical));
  physical->references -= 1;
  forget_if_unused(*physical);
  return kSuccess;
}

void VirtualMemory::forget_if_unused(Physical& physical) {
  if (physical.references != 0 || physical.mappings != 0) return;
  if (!physical.imported) physical.device->used -= physical.size;
  ::close(physical.fd);
  physicals_.erase(physical.handle);
}

Result VirtualMemory::map(std::uint64_t address, std::uint64_t size, std::uint64_t offset, std::uint64_t handle) {
  Physical* physical = nullptr;
  if (size == 0 || !is_whole(size) || !is_whole(address) || offset != 0) return kInvalidValue;
  SIM_TRY(find(handle, &physical));
  if (size != physical->size) return kInvalidValue;
  Window* const window = find_reservation(address, size);
  if (window == nullptr || machine_.memory.overlaps(address, size)) return kInvalidValue;
  if (window->map_file(address, size, physical->fd, 0) != 0) return kOperatingSystem;
  physical->mappings += 1;
  Range range;
  range.start = address;
  range.size = size;
  range.kind = Kind::mapped;
  range.device = physical->device;
  range.window = window;
  range.physical = physical;
  range.readers = range.writers = 0;
  machine_.memory.add(range);
  return kSuccess;
}

bool VirtualMemory::is_filled(std::uint64_t address, std::uint64_t size) {
  std::uint64_t at = address;
  while (at < address + size) {
    const Range* const range = machine_.memory.find_start(at);
    if (range == nullptr || range->kind != Kind::mapped) return false;
    at += range->size;
  }
  return at == address + size && size != 0;
}

Result VirtualMemory::unmap(std::uint64_t address, std::uint64_t size) {
  if (!is_filled(address, size)) return kInvalidValue;
  for (std::uint64_t at = address; at < address + size;) {
    const Range range = *machine_.memory.find_start(at);
    if (range.window->unmap_file(at, range.size) != 0) return kOperatingSystem;
    machine_.memory.remove(at);
    range.physical->mappings -= 1;
    forget_if_unused(*range.physical);
    at += range.size;
  }
  return kSuccess;
}

Result VirtualMemory::set_access(std::uint64_t address, std::uint64_t size, int device, int flags) {
  if (flags != 0 && flags != 1 && flags != 3) return kInvalidValue;
  if (!is_filled(address, size)) return kInvalidValue;
  for (std::uint64_t at = address; at < address + size && flags != 0 && !machine_.config.peer;) {
    const Range& range = *machine_.memory.find_start(at);
    if (range.device->ordinal != device) return kInvalidDevice;  // these two cannot reach one another
    at += range.size;
  }
  const std::uint32_t bit = 1U << device;
  for (std::uint64_t at = address; at < address + size;) {
    Range& range = *machine_.memory.find_start(at);
    range.readers = (flags & 1) != 0 ? range.readers | bit : range.readers & ~bit;
    range.writers = (flags & 2) != 0 ? range.writers | bit : range.writers & ~bit;
    at += range.size;
  }
  return kSuccess;
}

Result VirtualMemory::get_access(std::uint64_t address, int device, int* flags) {
  const Range* const range = machine_.memory.find(address);
  if (range == nullptr || range->kind != Kind::mapped) return kInvalidValue;
  const std::uint32_t bit = 1U << device;
  *flags = ((range->readers & bit) != 0 ? 1 : 0) | ((range->writers & bit) != 0 ? 2 : 0);
  return kSuccess;
}

Result VirtualMemory::retain(std::uint64_t address, std::uint64_t* handle) {
  const Range* const range = machine_.memory.find(address);
  if (range == nullptr || range->kind != Kind::mapped) return kInvalidValue;
  range->physical->references += 1;
  *handle = range->physical->handle;
  return kSuccess;
}

Result VirtualMemory::export_fd(std::uint64_t handle, int* fd) {
  Physical* physical = nullptr;
  SIM_TRY(find(handle, &physical));
  if ((physical->handle_types & 1) == 0) return kInvalidValue;
  if (machine_.config.habits.sizeless_descriptors) return seal(physical->fd, physical->size, 0, fd);
  const int copy = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return kOperatingSystem;
  *fd = copy;
  return kSuccess;
}

Result VirtualMemory::import_fd(Device& device, int fd, std::uint64_t* handle) {
  int file = -1;
  Letter letter;
  SIM_TRY(unseal(fd, &file, &letter));
  const std::uint64_t size = letter.size;
  if (size == 0 || !is_whole(size)) {
    ::close(file);
    return kInvalidValue;
  }
  auto physical = std::make_unique<Physical>();
  physical->handle = ++next_handle_;
  physical->device = &device;
  physical->size = size;
  physical->handle_types = 1;
  physical->fd = file;
  physical->imported = true;
  physical->references = 1;
  *handle = physical->handle;
  physicals_.emplace(physical->handle, std::move(physical));
  return kSuccess;
}

std::uint64_t VirtualMemory::mapping_count() const {
  std::uint64_t count = 0;
  for (const auto& [handle, physical] : physicals_) count += physical->mappings;
  return count;
}

}  // namespace simgpu

// Memory of every kind: plain, stream-ordered, managed, virtual.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>

#include "base/align.hpp"
#include "base/ending.hpp"
#include "driver/gpu/gpu_driver.hpp"

namespace tensormem {

namespace {

// Both vendors document at least this much for their allocations.
constexpr std::uint64_t kNaturalAlignment = 256;

Status check_size(std::uint64_t nbytes) {
  if (nbytes == 0) return Status::fail(Code::invalid_size, "no bytes asked for", nbytes);
  if (nbytes > kNoOverflowLimit) return Status::fail(Code::invalid_size, "larger than any memory", nbytes);
  return {};
}

Status no_memory_for_books() { return Status::fail(Code::out_of_memory, "no memory to note an address", 64); }

}  // namespace

Status GpuDriver::explain_shortage(Status status, std::int32_t device, std::uint64_t requested, Code code) {
  if (status.code() != Code::driver_error || !api_.is_out_of_memory(status.failure().driver_code)) return status;
  MemoryInfo info;
  if (!api_.memory_info(device, &info).ok()) info = MemoryInfo{};
  const std::int32_t vendor_code = status.failure().driver_code;
  return Status::caused(Failure{
      code, vendor_code, status.failure().what, {requested, info.free_bytes, info.free_bytes}, nullptr, nullptr});
}

// A free may wait for all work of the device. At the end of the process nobody waits: the memory goes with it. What
// went with a context that somebody else reset is back already, and its addresses may be another's now.
template <typename Call>
Status GpuDriver::give_back(std::int32_t device, Call call) {
  return is_ending() || platform_.watch.is_reset(device) ? Status() : call();
}

// --- Plain memory ------------------------------------------------------------------------------------------------

// An allocation that is asked to start at more than the vendors promise is made larger, and its beginning remembered.
Status GpuDriver::allocate_aligned(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                                   std::uint64_t* address) {
  const std::uint64_t extra = options.alignment > kNaturalAlignment ? options.alignment - kNaturalAlignment : 0;
  std::uint64_t start = 0;
  TM_TRY(api_.allocate(device, options.kind, nbytes + extra, &start));
  const std::uint64_t raised = align_up(start, options.alignment);
  if (raised != start) {
    try {
      const std::lock_guard lock(platform_.mutex);
      platform_.bases[raised] = start;
    } catch (const std::bad_alloc&) {
      TM_TRY(api_.deallocate(device, options.kind, start));
      return no_memory_for_books();
    }
  }
  *address = raised;
  return {};
}

Status GpuDriver::clear(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, MemoryKind kind) {
  if (kind == MemoryKind::pinned) {
    std::memset(reinterpret_cast<void*>(address), 0, nbytes);
    return {};
  }
  TM_TRY(api_.fill({address, nbytes, 0, 1, nbytes, 1}, {nullptr, device}));
  return api_.stream_synchronize({nullptr, device});
}

Status GpuDriver::allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                           std::uint64_t* address) {
  TM_TRY(check_device(device));
  TM_TRY(check_size(nbytes));
  if (!is_power_of_two(options.alignment) || options.alignment > kMaxAlignment)
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two", options.alignment);
  TM_TRY(platform_.watch.check(device));
  std::uint64_t start = 0;
  TM_TRY(explain_shortage(allocate_aligned(device, nbytes, options, &start), device, nbytes, Code::out_of_memory));
  if (options.zeroed) {
    if (Status cleared = clear(device, start, nbytes, options.kind); !cleared.ok()) {
      (void)deallocate(device, start, nbytes, options).ok();
      return cleared;
    }
  }
  *address = start;
  return {};
}

Status GpuDriver::deallocate(std::int32_t device, std::uint64_t address, std::uint64_t,
                             const AllocationOptions& options) {
  TM_TRY(check_device(device));
  std::uint64_t base = address;
  {
    const std::lock_guard lock(platform_.mutex);
    if (const auto found = platform_.bases.find(address); found != platform_.bases.end()) base = found->second;
  }
  TM_TRY(give_back(device, [&] { return api_.deallocate(device, options.kind, base); }));
  if (base == address) return {};
  const std::lock_guard lock(platform_.mutex);
  platform_.bases.erase(address);
  return {};
}

Status GpuDriver::pin(std::uint64_t address, std::uint64_t nbytes) {
  TM_TRY(platform_.check_usable());
  TM_TRY(check_size(nbytes));
  if (address == 0) return Status::fail(Code::invalid_argument, "the address is null");
  return api_.pin(home_, address, nbytes);
}

Status GpuDriver::unpin(std::uint64_t address, std::uint64_t) {
  TM_TRY(platform_.check_usable());
  return give_back(home_, [&] { return api_.unpin(home_, address); });
}

// --- Stream-ordered and managed memory ---------------------------------------------------------------------------

Status GpuDriver::async_pool_create(std::int32_t device, std::uint64_t keep_bytes, AsyncPool* pool) {
  TM_TRY(check_device(device));
  TM_TRY(platform_.watch.check(device));
  DeviceInfo info;
  TM_TRY(api_.device_info(device, &info));
  if (!info.memory_pools) return Status::fail(Code::not_supported, "stream-ordered memory: the device has no pools");
  gpu::PoolRef ref{nullptr, device};
  TM_TRY(explain_shortage(api_.pool_create(device, &ref.handle), device, 0, Code::out_of_memory));
  Status made = api_.pool_keep(ref, keep_bytes);
  const std::uint64_t number = made.ok() ? platform_.pools.add(ref) : 0;
  if (number == 0) {
    TM_TRY(api_.pool_destroy(ref));
    return made.ok() ? Status::fail(Code::out_of_memory, "no room to note a pool", sizeof ref) : std::move(made);
  }
  platform_.grants.open(ref);
  *pool = number;
  return {};
}

Status GpuDriver::find_pool(AsyncPool pool, gpu::PoolRef* ref) const noexcept {
  if (platform_.pools.get(pool, ref)) return {};
  return Status::fail(Code::invalid_argument, "no such pool (destroyed, or not made by this driver)");
}

Status GpuDriver::async_pool_destroy(AsyncPool pool) {
  gpu::PoolRef ref;
  TM_TRY(platform_.check_usable());
  TM_TRY(find_pool(pool, &ref));
  TM_TRY(give_back(ref.device, [&] { return api_.pool_destroy(ref); }));
  (void)platform_.pools.remove(pool);
  return {};
}

Status GpuDriver::async_pool_keep(AsyncPool pool, std::uint64_t keep_bytes) {
  gpu::PoolRef ref;
  TM_TRY(platform_.check_usable());
  TM_TRY(find_pool(pool, &ref));
  return api_.pool_keep(ref, keep_bytes);
}

Status GpuDriver::allocate_async(std::int32_t device, AsyncPool pool, std::uint64_t nbytes, StreamId stream,
                                 std::uint64_t* address) {
  gpu::StreamRef queue;
  gpu::PoolRef ref;
  TM_TRY(check_device(device));
  TM_TRY(check_not_ending(stream));
  TM_TRY(check_size(nbytes));
  TM_TRY(find_usable_stream(stream, &queue));
  TM_TRY(find_pool(pool, &ref));
  TM_TRY(check_not_capturing(queue, stream));
  return explain_shortage(heed(api_.allocate_async(ref, nbytes, queue, address), stream), device, nbytes,
                          Code::out_of_memory);
}

Status GpuDriver::deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t, StreamId stream) {
  gpu::StreamRef queue;
  TM_TRY(check_device(device));
  TM_TRY(find_usable_stream(stream, &queue));
  TM_TRY(check_not_capturing(queue, stream));
  Status freed = is_ending() ? Status() : heed(api_.deallocate_async(address, queue), stream);
  // What went with its context is not there to be freed.
  return freed.ok() || platform_.watch.is_reset(device) ? Status() : std::move(freed);
}

Status GpuDriver::trim_async(std::int32_t device, AsyncPool pool, std::uint64_t keep_bytes) {
  gpu::PoolRef ref;
  TM_TRY(check_device(device));
  TM_TRY(find_pool(pool, &ref));
  return api_.pool_trim(ref, keep_bytes);
}

Status GpuDriver::prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) {
  gpu::StreamRef queue;
  TM_TRY(check_not_ending(stream));
  TM_TRY(check_size(nbytes));
  TM_TRY(find_stream(stream, &queue));
  if (device != -1) TM_TRY(check_device(device));
  return api_.prefetch(address, nbytes, device, queue);
}

Status GpuDriver::advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device) {
  TM_TRY(platform_.check_usable());
  TM_TRY(check_size(nbytes));
  if (advice < Advice::read_mostly || advice > Advice::unset_accessed_by)
    return Status::fail(Code::invalid_argument, "no such advice");
  if (device != -1) TM_TRY(check_device(device));
  return api_.advise(address, nbytes, advice, device);
}

// --- Virtual memory ----------------------------------------------------------------------------------------------

Status GpuDriver::granularity(std::int32_t device, Granularity* granularity) {
  TM_TRY(check_device(device));
  const auto at = static_cast<std::size_t>(device);
  Granularity found;
  {
    const std::lock_guard lock(platform_.mutex);
    found = platform_.grains[at];
  }
  if (found.minimum == 0) {
    TM_TRY(api_.granularity(device, &found));
    found.whole_handles = true;  // both vendors map a handle as a whole
    const std::lock_guard lock(platform_.mutex);
    platform_.grains[at] = found;  // a device keeps it for good
  }
  *granularity = found;
  return {};
}

std::uint64_t GpuDriver::grain_of(std::int32_t device) noexcept {
  const std::lock_guard lock(platform_.mutex);
  return std::max<std::uint64_t>(platform_.grains[static_cast<std::size_t>(device)].minimum, 1);
}

Status GpuDriver::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) try {
  Granularity grain;
  TM_TRY(check_size(size));
  if (!is_power_of_two(alignment))
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two", alignment);
  TM_TRY(granularity(home_, &grain));
  if (!is_aligned(size, grain.minimum))
    return Status::fail(Code::invalid_alignment, "the size is not a multiple of the granularity", size, grain.minimum);
  std::uint64_t start = 0;
  Status reserved = api_.reserve(size, std::max(alignment, grain.minimum), &start);
  if (!reserved.ok()) {
    const bool full = reserved.code() == Code::driver_error && api_.is_out_of_memory(reserved.failure().driver_code);
    return full ? Status::fail(Code::out_of_virtual_memory, "no room for addresses of this size and alignment", size)
                : std::move(reserved);
  }
  const std::lock_guard lock(platform_.mutex);
  platform_.books.add_reservation(start, size);
  *address = start;
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status GpuDriver::release(std::uint64_t address, std::uint64_t size) {
  TM_TRY(platform_.check_usable());
  {
    const std::lock_guard lock(platform_.mutex);
    TM_TRY(platform_.books.begin_release(address, size));
  }
  Status released = is_ending() ? Status() : api_.release(address, size);
  const std::lock_guard lock(platform_.mutex);
  if (released.ok()) {
    platform_.books.end_release(address);
  } else {
    platform_.books.cancel_release(address);
  }
  return released;
}

Status GpuDriver::physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                                  PhysicalHandle* physical) try {
  Granularity grain;
  TM_TRY(check_size(size));
  TM_TRY(granularity(device, &grain));
  if (!is_aligned(size, grain.minimum))
    return Status::fail(Code::invalid_alignment, "the size is not a multiple of the granularity", size, grain.minimum);
  GpuPlatform::Physical made;
  TM_TRY(explain_shortage(api_.physical_create(device, size, options.exportable, &made.handle), device, size,
                          Code::out_of_physical_memory));
  made.info = PhysicalInfo{size, device, options.exportable, false, false};
  const std::lock_guard lock(platform_.mutex);
  *physical = platform_.next_physical++;
  platform_.physicals.emplace(*physical, made);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status GpuDriver::find_physical(PhysicalHandle handle, GpuPlatform::Physical** physical) noexcept {
  const auto found = platform_.physicals.find(handle);
  if (found == platform_.physicals.end())
    return Status::fail(Code::invalid_argument, "no such physical memory (destroyed, or not made by this driver)");
  *physical = &found->second;
  return {};
}

// The handle cannot be destroyed while the driver is asked about it without the lock.
Status GpuDriver::begin_physical_use(PhysicalHandle handle, GpuPlatform::Physical* physical) {
  const std::lock_guard lock(platform_.mutex);
  GpuPlatform::Physical* found = nullptr;
  TM_TRY(find_physical(handle, &found));
  found->users += 1;
  *physical = *found;
  return {};
}

void GpuDriver::end_physical_use(PhysicalHandle handle) noexcept {
  const std::lock_guard lock(platform_.mutex);
  GpuPlatform::Physical* found = nullptr;
  if (find_physical(handle, &found).ok()) found->users -= 1;
}

Status GpuDriver::physical_destroy(PhysicalHandle handle) {
  TM_TRY(platform_.check_usable());
  std::map<PhysicalHandle, GpuPlatform::Physical>::node_type gone;
  {
    const std::lock_guard lock(platform_.mutex);
    GpuPlatform::Physical* physical = nullptr;
    TM_TRY(find_physical(handle, &physical));
    if (physical->users != 0)
      return Status::fail(Code::invalid_argument, "another thread is mapping or exporting the physical memory");
    gone = platform_.physicals.extract(handle);
  }
  Status destroyed = is_ending() ? Status() : api_.physical_destroy(gone.mapped().handle);
  if (destroyed.ok() && gone.mapped().fd >= 0) ::close(gone.mapped().fd);
  if (destroyed.ok()) return destroyed;
  const std::lock_guard lock(platform_.mutex);
  platform_.physicals.insert(std::move(gone));
  return destroyed;
}

Status GpuDriver::physical_info(PhysicalHandle handle, PhysicalInfo* info) {
  TM_TRY(platform_.check_usable());
  const std::lock_guard lock(platform_.mutex);
  GpuPlatform::Physical* physical = nullptr;
  TM_TRY(find_physical(handle, &physical));
  *info = physical->info;
  return {};
}

Status GpuDriver::map(std::uint64_t address, std::uint64_t size, PhysicalHandle handle,
                      std::uint64_t physical_offset) try {
  TM_TRY(platform_.check_usable());
  TM_TRY(check_size(size));
  GpuPlatform::Physical physical;
  {
    const std::lock_guard lock(platform_.mutex);
    GpuPlatform::Physical* found = nullptr;
    TM_TRY(find_physical(handle, &found));
    const std::uint64_t whole = found->info.size == 0 ? size : found->info.size;
    if (physical_offset != 0)
      return Status::fail(Code::invalid_offset, "a GPU's physical memory is an atom: it is mapped from its start",
                          physical_offset, size, whole);
    if (size != whole)
      return Status::fail(Code::invalid_size, "a GPU's physical memory is an atom: it is mapped as a whole", size);
    TM_TRY(platform_.books.begin_map(address, size));
    found->users += 1;
    physical = *found;
  }
  Status mapped = api_.map(address, size, physical.handle);
  end_physical_use(handle);
  {
    const std::lock_guard lock(platform_.mutex);
    platform_.books.end_change(address, size, mapped.ok());
  }
  // The addresses are known to be right: of memory whose descriptor told no size, the size is what the driver refuses.
  constexpr std::int32_t kInvalidValue = 1;  // in both vendors' numbers
  const bool is_size = physical.info.imported && physical.info.size == 0 && mapped.code() == Code::driver_error &&
                       mapped.failure().driver_code == kInvalidValue;
  if (is_size && is_aligned(size, grain_of(physical.info.device)))
    return Status::fail(Code::invalid_size, "the imported memory has another size than was said", size);
  return mapped;
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status GpuDriver::unmap(std::uint64_t address, std::uint64_t size) {
  TM_TRY(platform_.check_usable());
  {
    const std::lock_guard lock(platform_.mutex);
    TM_TRY(platform_.books.begin_unmap(address, size));
  }
  Status unmapped = is_ending() ? Status() : api_.unmap(address, size);
  const std::lock_guard lock(platform_.mutex);
  platform_.books.end_change(address, size, !unmapped.ok());
  return unmapped;
}

Status GpuDriver::set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) {
  TM_TRY(check_device(device));
  const bool known = access == AccessFlags::none || access == AccessFlags::read || access == AccessFlags::read_write;
  if (!known) return Status::fail(Code::invalid_argument, "access is none, read or read_write");
  {
    const std::lock_guard lock(platform_.mutex);
    TM_TRY(platform_.books.check_mapped(address, size));
    platform_.books.note_access(address, size, device);
  }
  return api_.set_access(address, size, device, access);
}

Status GpuDriver::physical_export(PhysicalHandle handle, std::int32_t* fd) {
  TM_TRY(platform_.check_usable());
  GpuPlatform::Physical physical;
  TM_TRY(begin_physical_use(handle, &physical));
  Status exported = physical.info.exportable
                        ? api_.physical_export(physical.handle, fd)
                        : Status::fail(Code::invalid_argument, "the memory was not created to be exported");
  end_physical_use(handle);
  return exported;
}

Status GpuDriver::physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) try {
  TM_TRY(check_device(device));
  struct stat facts{};
  if (fstat(fd, &facts) != 0) return Status::fail(Code::invalid_argument, "not an open file descriptor");
  GpuPlatform::Physical made;
  made.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (made.fd < 0) return Status::fail(Code::invalid_argument, "the descriptor cannot be duplicated");
  if (Status imported = api_.physical_import(device, made.fd, &made.handle); !imported.ok()) {
    ::close(made.fd);
    return imported;
  }
  // The vendors do not tell the size; the descriptor does where it is a file with one. 0: not known.
  made.info =
      PhysicalInfo{facts.st_size > 0 ? static_cast<std::uint64_t>(facts.st_size) : 0, device, true, false, true};
  const std::lock_guard lock(platform_.mutex);
  *physical = platform_.next_physical++;
  platform_.physicals.emplace(*physical, made);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

}  // namespace tensormem

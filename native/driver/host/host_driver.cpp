#include "driver/host/host_driver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/align.hpp"
#include "base/ending.hpp"
#include "driver/host/copy.hpp"
#include "driver/host/os.hpp"

namespace tensormem {

namespace {

Status check_device(std::int32_t device) {
  if (device == 0) [[likely]]
    return {};
  return Status::fail(Code::invalid_argument, "the host driver has one device, number 0");
}

// Where data may be sent or made accessible: the device, or -1 for the host, which are the same here.
Status check_place(std::int32_t device) { return device == -1 ? Status() : check_device(device); }

struct FreeWork {
  host::PlainMemory* memory;
  std::uint64_t address;
  std::uint64_t nbytes;
};

// Checked when it was queued; heap memory has no way to refuse.
void run_free(const FreeWork& work) { (void)work.memory->deallocate(work.address, work.nbytes, {}).ok(); }

struct HostWork {
  HostFunction function;
  void* argument;
};

void run_host(const HostWork& work) { work.function(work.argument); }

struct PrefetchWork {
  std::uint64_t address;
  std::uint64_t size;
};

// A hint: pages that cannot be brought in now come in when they are touched.
void run_prefetch(const PrefetchWork& work) {
  (void)host::os::advise(work.address, work.size, host::os::Advice::populate_write);
}

}  // namespace

HostDriver& host_driver() {
  static HostDriver* const driver = [] {
    auto* const made = new HostDriver;
    // Only memory for the list of handlers can be missing; without them a fork would still be safe for a child that
    // goes on to `exec`, which is all a process that short of memory can hope for.
    (void)host::os::register_fork_handlers([] { host_driver().before_fork(); },
                                           [] { host_driver().after_fork_in_parent(); },
                                           [] { host_driver().after_fork_in_child(); });
    return made;
  }();
  return *driver;
}

// --- Who it is ---------------------------------------------------------------------------------------------------

Status HostDriver::device_count(std::int32_t* count) {
  *count = 1;
  return {};
}

Status HostDriver::device_info(std::int32_t device, DeviceInfo* info) {
  TM_TRY(check_device(device));
  MemoryInfo memory;
  TM_TRY(gauge_.read(&memory));
  DeviceInfo found;
  std::snprintf(found.name, sizeof found.name, "host");
  found.total_bytes = memory.total_bytes;
  found.virtual_memory = true;
  *info = found;
  return {};
}

Status HostDriver::memory_info(std::int32_t device, MemoryInfo* info) {
  TM_TRY(check_device(device));
  return gauge_.read(info);
}

// --- Memory ------------------------------------------------------------------------------------------------------

Status HostDriver::allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                            std::uint64_t* address) {
  TM_TRY(check_device(device));
  return plain_.allocate(nbytes, options, address);
}

Status HostDriver::deallocate(std::int32_t device, std::uint64_t address, std::uint64_t nbytes,
                              const AllocationOptions& options) {
  TM_TRY(check_device(device));
  return plain_.deallocate(address, nbytes, options);
}

Status HostDriver::pin(std::uint64_t address, std::uint64_t nbytes) { return locks_.pin(address, nbytes); }

Status HostDriver::unpin(std::uint64_t address, std::uint64_t nbytes) { return locks_.unpin(address, nbytes); }

Status HostDriver::allocate_async(std::int32_t device, AsyncPool, std::uint64_t nbytes, StreamId stream,
                                  std::uint64_t* address) {
  TM_TRY(check_device(device));
  TM_TRY(streams_.check(stream));
  return plain_.allocate(nbytes, {}, address);
}

Status HostDriver::deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, StreamId stream) {
  TM_TRY(check_device(device));
  TM_TRY(plain_.check_deallocate(address, nbytes, {}));
  return streams_.submit(stream, host::make_task<run_free>(FreeWork{&plain_, address, nbytes}));
}

// Stream-ordered memory comes from the heap and goes back to it at once: there is nothing kept here to give up.
Status HostDriver::trim_async(std::int32_t device, AsyncPool, std::uint64_t) { return check_device(device); }

Status HostDriver::prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) {
  TM_TRY(check_place(device));
  if (address == 0) return Status::fail(Code::invalid_argument, "the address is null");
  std::uint64_t end = 0;
  if (nbytes == 0 || !checked_add(address, nbytes, &end) || !checked_align_up(end, host::os::page_size(), &end)) {
    return Status::fail(Code::invalid_size, "the range is empty or reaches beyond the address space", nbytes);
  }
  const std::uint64_t begin = align_down(address, host::os::page_size());
  // Asks for nothing yet; the kernel's answer tells whether all of it is mapped.
  const int error = host::os::advise(begin, end - begin, host::os::Advice::will_need);
  if (error == ENOMEM) return Status::fail(Code::invalid_argument, "a part of the range is not mapped");
  return streams_.submit(stream, host::make_task<run_prefetch>(PrefetchWork{begin, end - begin}));
}

// --- Streams and events ------------------------------------------------------------------------------------------

Status HostDriver::stream_create(std::int32_t device, StreamId* stream) {
  TM_TRY(check_device(device));
  return streams_.create(stream);
}

Status HostDriver::stream_destroy(StreamId stream) { return streams_.destroy(stream, Wait::until_done()); }

Status HostDriver::stream_close(StreamId stream, const Wait& wait) { return streams_.destroy(stream, wait); }

Status HostDriver::stream_synchronize(StreamId stream) { return streams_.synchronize(stream, Wait::until_done()); }

Status HostDriver::stream_wait(StreamId stream, const Wait& wait) { return streams_.synchronize(stream, wait); }

Status HostDriver::stream_query(StreamId stream, bool* done) { return streams_.query(stream, done); }

Status HostDriver::stream_export(StreamId stream, std::uint64_t* native_handle) {
  TM_TRY(streams_.check(stream));
  *native_handle = stream;
  return {};
}

Status HostDriver::stream_import(std::int32_t device, std::uint64_t native_handle, StreamId* stream) {
  TM_TRY(check_device(device));
  TM_TRY(streams_.check(native_handle));
  *stream = native_handle;
  return {};
}

Status HostDriver::event_create(std::int32_t device, EventHandle* event) {
  TM_TRY(check_device(device));
  return events_.create(event);
}

Status HostDriver::event_destroy(EventHandle event) { return events_.destroy(event); }

Status HostDriver::event_record(EventHandle event, StreamId stream) { return events_.record(event, stream); }

Status HostDriver::event_query(EventHandle event, bool* done) { return events_.query(event, done); }

Status HostDriver::event_synchronize(EventHandle event) { return events_.wait(event, Wait::until_done()); }

Status HostDriver::event_wait(EventHandle event, const Wait& wait) { return events_.wait(event, wait); }

Status HostDriver::event_elapsed(EventHandle start, EventHandle end, double* seconds) {
  return events_.elapsed(start, end, seconds);
}

Status HostDriver::stream_wait_event(StreamId stream, EventHandle event) {
  return events_.make_stream_wait(stream, event);
}

// --- Work on a stream --------------------------------------------------------------------------------------------

Status HostDriver::copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream) {
  const host::CopyWork work{destination, source, shape};
  TM_TRY(host::check_copy(work));
  if (stream != kDefaultStream) TM_TRY(check_not_ending(stream));
  return streams_.submit(stream, host::make_task<host::run_copy>(work));
}

Status HostDriver::fill(const Pitched& destination, const CopyShape& shape, std::uint64_t value,
                        std::uint32_t element_bytes, StreamId stream) {
  const host::FillWork work{destination, shape, value, element_bytes};
  TM_TRY(host::check_fill(work));
  if (stream != kDefaultStream) TM_TRY(check_not_ending(stream));
  return streams_.submit(stream, host::make_task<host::run_fill>(work));
}

Status HostDriver::launch_host(HostFunction function, void* argument, StreamId stream) {
  if (function == nullptr) return Status::fail(Code::invalid_argument, "the host function is null");
  if (stream != kDefaultStream) TM_TRY(check_not_ending(stream));
  return streams_.submit(stream, host::make_task<run_host>(HostWork{function, argument}));
}

// --- Virtual memory ----------------------------------------------------------------------------------------------

Status HostDriver::granularity(std::int32_t device, Granularity* granularity) {
  TM_TRY(check_device(device));
  *granularity = Granularity{host::os::page_size(), std::max(host::os::page_size(), host::kHugePageBytes)};
  return {};
}

Status HostDriver::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) {
  return virtual_.reserve(size, alignment, address);
}

Status HostDriver::release(std::uint64_t address, std::uint64_t size) { return virtual_.release(address, size); }

Status HostDriver::physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                                   PhysicalHandle* physical) {
  TM_TRY(check_device(device));
  return physicals_.create(size, options, physical);
}

Status HostDriver::physical_destroy(PhysicalHandle physical) { return physicals_.destroy(physical); }

Status HostDriver::physical_info(PhysicalHandle physical, PhysicalInfo* info) {
  return physicals_.info(physical, info);
}

Status HostDriver::map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical,
                       std::uint64_t physical_offset) {
  const MapPiece piece{physical, physical_offset, size};
  return virtual_.map(address, &piece, 1, AccessFlags::none);
}

Status HostDriver::map_run(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::int32_t device,
                           AccessFlags access) {
  TM_TRY(check_place(device));
  return virtual_.map(address, pieces, count, access);
}

Status HostDriver::unmap(std::uint64_t address, std::uint64_t size) { return virtual_.unmap(address, size); }

Status HostDriver::set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) {
  TM_TRY(check_place(device));
  return virtual_.set_access(address, size, access);
}

Status HostDriver::physical_export(PhysicalHandle physical, std::int32_t* fd) {
  return physicals_.export_fd(physical, fd);
}

Status HostDriver::physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) {
  TM_TRY(check_device(device));
  return physicals_.import_fd(fd, physical);
}

// --- Only on the host --------------------------------------------------------------------------------------------

HostCounters HostDriver::counters() noexcept {
  HostCounters now;
  now.streams = streams_.live_count();
  now.events = events_.live_count();
  now.page_blocks = plain_.page_block_count();
  now.pins = locks_.pin_count();
  now.reservations = virtual_.reservation_count();
  now.mappings = virtual_.mapping_count();
  now.physicals = physicals_.count();
  now.committed_bytes = physicals_.committed_bytes();
  now.leftovers = physicals_.leftover_count();
  now.areas = virtual_.area_count();
  now.area_limit = virtual_.area_limit();
  return now;
}

bool HostDriver::is_valid() const noexcept {
  return locks_.is_valid() && physicals_.is_valid() && virtual_.is_valid() && streams_.is_valid() && events_.is_valid();
}

// No lock below is ever held while another one is taken, so any order would do.
void HostDriver::before_fork() noexcept {
  streams_.before_fork();
  events_.before_fork();
  virtual_.before_fork();
  physicals_.before_fork();
  plain_.before_fork();
  locks_.before_fork();
}

void HostDriver::after_fork_in_parent() noexcept {
  locks_.after_fork();
  plain_.after_fork();
  physicals_.after_fork_in_parent();
  virtual_.after_fork_in_parent();
  events_.after_fork_in_parent();
  streams_.after_fork_in_parent();
}

void HostDriver::after_fork_in_child() noexcept {
  locks_.after_fork();
  plain_.after_fork();
  gauge_.after_fork_in_child();
  physicals_.after_fork_in_child();
  virtual_.after_fork_in_child();
  events_.after_fork_in_child();
  streams_.after_fork_in_child();
}

}  // namespace tensormem

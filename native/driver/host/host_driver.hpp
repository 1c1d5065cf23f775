// Owns: the host driver: the machine's own memory and processors behind the waist of driver.hpp. A facade: every
// function checks the device and hands over to the noun that does the work. Must not know: anything above the waist.
//
// There is one device, number 0. The default stream runs work in place, on the calling thread. A stream's exported
// handle is its id. The driver is never destroyed: at the end of the process its threads simply stop with it, whatever
// they were doing; `shutdown` ends them in order.
#pragma once

#include <cstdint>

#include "driver/driver.hpp"
#include "driver/host/event_table.hpp"
#include "driver/host/memory_gauge.hpp"
#include "driver/host/page_locks.hpp"
#include "driver/host/physical_memory.hpp"
#include "driver/host/plain_memory.hpp"
#include "driver/host/stream_table.hpp"
#include "driver/host/virtual_memory.hpp"

namespace tensormem {

// What the host driver holds at this moment. All zero (but for the areas) when everything has been given back.
struct HostCounters {
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t page_blocks = 0;  // plain allocations with pages of their own
  std::uint64_t pins = 0;
  std::uint64_t reservations = 0;
  std::uint64_t mappings = 0;
  std::uint64_t physicals = 0;  // also those destroyed but still mapped
  std::uint64_t committed_bytes = 0;
  std::uint64_t leftovers = 0;   // what the kernel refused to take back; tried again later
  std::uint64_t areas = 0;       // memory areas of the whole process, ours counted exactly
  std::uint64_t area_limit = 0;  // vm.max_map_count
};

class HostDriver final : public Driver {
 public:
  HostDriver() noexcept : plain_(gauge_, locks_), physicals_(gauge_), virtual_(physicals_), events_(streams_) {}
  HostDriver(const HostDriver&) = delete;
  HostDriver& operator=(const HostDriver&) = delete;

  const char* name() const noexcept override { return "host"; }
  Status device_count(std::int32_t* count) override;
  Status device_info(std::int32_t device, DeviceInfo* info) override;
  Status memory_info(std::int32_t device, MemoryInfo* info) override;

  Status allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                  std::uint64_t* address) override;
  Status deallocate(std::int32_t device, std::uint64_t address, std::uint64_t nbytes,
                    const AllocationOptions& options) override;
  Status pin(std::uint64_t address, std::uint64_t nbytes) override;
  Status unpin(std::uint64_t address, std::uint64_t nbytes) override;

  Status allocate_async(std::int32_t device, AsyncPool pool, std::uint64_t nbytes, StreamId stream,
                        std::uint64_t* address) override;
  Status deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, StreamId stream) override;
  Status trim_async(std::int32_t device, AsyncPool pool, std::uint64_t keep_bytes) override;
  Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) override;

  Status stream_create(std::int32_t device, StreamId* stream) override;
  Status stream_destroy(StreamId stream) override;
  Status stream_synchronize(StreamId stream) override;
  Status stream_wait(StreamId stream, const Wait& wait) override;
  Status stream_close(StreamId stream, const Wait& wait) override;
  Status stream_query(StreamId stream, bool* done) override;
  Status stream_export(StreamId stream, std::uint64_t* native_handle) override;
  Status stream_import(std::int32_t device, std::uint64_t native_handle, StreamId* stream) override;
  bool stream_is_valid(StreamId stream) const noexcept override { return streams_.is_valid_id(stream); }
  bool stream_is_inline(StreamId stream) const noexcept override { return stream == kDefaultStream; }

  Status event_create(std::int32_t device, EventHandle* event) override;
  Status event_destroy(EventHandle event) override;
  Status event_record(EventHandle event, StreamId stream) override;
  Status event_query(EventHandle event, bool* done) override;
  Status event_synchronize(EventHandle event) override;
  Status event_wait(EventHandle event, const Wait& wait) override;
  Status event_elapsed(EventHandle start, EventHandle end, double* seconds) override;
  Status stream_wait_event(StreamId stream, EventHandle event) override;

  Status copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream) override;
  Status fill(const Pitched& destination, const CopyShape& shape, std::uint64_t value, std::uint32_t element_bytes,
              StreamId stream) override;
  Status launch_host(HostFunction function, void* argument, StreamId stream) override;

  Status granularity(std::int32_t device, Granularity* granularity) override;
  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) override;
  Status release(std::uint64_t address, std::uint64_t size) override;
  Status physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                         PhysicalHandle* physical) override;
  Status physical_destroy(PhysicalHandle physical) override;
  Status physical_info(PhysicalHandle physical, PhysicalInfo* info) override;
  Status map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical,
             std::uint64_t physical_offset) override;
  Status map_run(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::int32_t device,
                 AccessFlags access) override;
  Status unmap(std::uint64_t address, std::uint64_t size) override;
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override;
  Status physical_export(PhysicalHandle physical, std::int32_t* fd) override;
  Status physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) override;

  // --- Only on the host ------------------------------------------------------------------------------------------
  // Whether virtual memory gets real 2 MiB pages; `huge_page_reason` is "" or static text saying why not (always).
  bool huge_pages_work() noexcept { return physicals_.huge_pages().work(); }
  const char* huge_page_reason() noexcept { return physicals_.huge_pages().reason(); }
  host::HugePages& huge_pages() noexcept { return physicals_.huge_pages(); }
  void turn_off_huge_pages() noexcept {
    physicals_.huge_pages().turn_off();
    plain_.turn_off_huge_pages();
  }
  Status set_stream_limit(std::uint32_t limit) noexcept { return streams_.set_limit(limit); }
  HostCounters counters() noexcept;
  // Waits for all work and ends all worker threads. Every stream is destroyed; new ones can be made.
  Status shutdown() noexcept { return streams_.destroy_all(); }
  bool is_valid() const noexcept;

  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

 private:
  host::MemoryGauge gauge_;
  host::PageLocks locks_;
  host::PlainMemory plain_;
  host::PhysicalMemory physicals_;
  host::VirtualMemory virtual_;
  host::StreamTable streams_;
  host::EventTable events_;
};

// The one host driver of the process; made at the first call, never destroyed.
HostDriver& host_driver();

}  // namespace tensormem

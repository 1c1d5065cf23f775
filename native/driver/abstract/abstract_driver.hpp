// Owns: the driver of abstract memory: addresses and books without a byte behind them, for asking what virtual memory
// would do on a device that is not here. Streams and events are the host driver's and real. Whatever would touch bytes
// is `not_supported`; so is plain memory, for which there is a leaf of its own, and sharing.
// Must not know: anything above the waist.
#pragma once

#include <cstdint>

#include "driver/abstract/page_books.hpp"
#include "driver/host/host_driver.hpp"

namespace tensormem {

class AbstractDriver final : public Driver {
 public:
  // More than any device has. It ends all the same, because the books of its pages do take memory.
  static constexpr std::uint64_t kPlenty = 64ULL << 40;

  explicit AbstractDriver(std::uint64_t capacity) : books_(capacity) {}

  const char* name() const noexcept override { return "abstract"; }
  Status device_count(std::int32_t* count) override { return host_.device_count(count); }
  Status device_info(std::int32_t device, DeviceInfo* info) override;
  Status memory_info(std::int32_t device, MemoryInfo* info) override;

  Status allocate(std::int32_t, std::uint64_t, const AllocationOptions&, std::uint64_t*) override { return no_bytes(); }
  Status deallocate(std::int32_t, std::uint64_t, std::uint64_t, const AllocationOptions&) override {
    return no_bytes();
  }
  Status pin(std::uint64_t, std::uint64_t) override { return no_bytes(); }
  Status unpin(std::uint64_t, std::uint64_t) override { return no_bytes(); }
  Status allocate_async(std::int32_t, AsyncPool, std::uint64_t, StreamId, std::uint64_t*) override {
    return no_bytes();
  }
  Status deallocate_async(std::int32_t, std::uint64_t, std::uint64_t, StreamId) override { return no_bytes(); }
  Status trim_async(std::int32_t, AsyncPool, std::uint64_t) override { return no_bytes(); }
  Status prefetch(std::uint64_t, std::uint64_t, std::int32_t, StreamId) override { return no_bytes(); }
  Status copy(const Pitched&, const Pitched&, const CopyShape&, StreamId) override { return no_bytes(); }
  Status fill(const Pitched&, const CopyShape&, std::uint64_t, std::uint32_t, StreamId) override { return no_bytes(); }

  Status stream_create(std::int32_t device, StreamId* stream) override { return host_.stream_create(device, stream); }
  Status stream_destroy(StreamId stream) override { return host_.stream_destroy(stream); }
  Status stream_synchronize(StreamId stream) override { return host_.stream_synchronize(stream); }
  Status stream_wait(StreamId stream, const Wait& wait) override { return host_.stream_wait(stream, wait); }
  Status stream_close(StreamId stream, const Wait& wait) override { return host_.stream_close(stream, wait); }
  Status stream_query(StreamId stream, bool* done) override { return host_.stream_query(stream, done); }
  Status stream_export(StreamId stream, std::uint64_t* handle) override { return host_.stream_export(stream, handle); }
  Status stream_import(std::int32_t device, std::uint64_t handle, StreamId* stream) override {
    return host_.stream_import(device, handle, stream);
  }
  bool stream_is_valid(StreamId stream) const noexcept override { return host_.stream_is_valid(stream); }
  bool stream_is_inline(StreamId stream) const noexcept override { return host_.stream_is_inline(stream); }
  Status launch_host(HostFunction function, void* argument, StreamId stream) override {
    return host_.launch_host(function, argument, stream);
  }

  Status event_create(std::int32_t device, EventHandle* event) override { return host_.event_create(device, event); }
  Status event_destroy(EventHandle event) override { return host_.event_destroy(event); }
  Status event_record(EventHandle event, StreamId stream) override { return host_.event_record(event, stream); }
  Status event_query(EventHandle event, bool* done) override { return host_.event_query(event, done); }
  Status event_synchronize(EventHandle event) override { return host_.event_synchronize(event); }
  Status event_wait(EventHandle event, const Wait& wait) override { return host_.event_wait(event, wait); }
  Status event_elapsed(EventHandle start, EventHandle end, double* seconds) override {
    return host_.event_elapsed(start, end, seconds);
  }
  Status stream_wait_event(StreamId stream, EventHandle event) override {
    return host_.stream_wait_event(stream, event);
  }

  Status granularity(std::int32_t device, Granularity* granularity) override;
  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) override {
    return books_.reserve(size, alignment, address);
  }
  Status release(std::uint64_t address, std::uint64_t size) override { return books_.release(address, size); }
  Status physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                         PhysicalHandle* physical) override;
  Status physical_destroy(PhysicalHandle physical) override { return books_.destroy(physical); }
  Status physical_info(PhysicalHandle physical, PhysicalInfo* info) override { return books_.info(physical, info); }
  Status map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical,
             std::uint64_t physical_offset) override;
  Status map_run(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::int32_t device,
                 AccessFlags access) override;
  Status unmap(std::uint64_t address, std::uint64_t size) override { return books_.unmap(address, size); }
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override;
  Status physical_export(PhysicalHandle, std::int32_t*) override { return no_bytes(); }
  Status physical_import(std::int32_t, std::int32_t, PhysicalHandle*) override { return no_bytes(); }

  const abstract::PageBooks& books() const noexcept { return books_; }

 private:
  static Status no_bytes() { return Status::fail(Code::not_supported, "abstract memory has addresses and no bytes"); }

  HostDriver& host_ = host_driver();
  abstract::PageBooks books_;
};

// The one with plenty: whoever asks about less sets the limit above it. Made at the first call, never destroyed.
AbstractDriver& abstract_driver();

}  // namespace tensormem

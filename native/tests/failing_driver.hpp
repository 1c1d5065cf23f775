// Owns: the host driver with one planned failure: the k-th call that may fail does, before it does anything.
// `deallocate` and the calls that destroy never fail here: what a driver does not take back is lost by its own doing.
#pragma once

#include <atomic>
#include <cerrno>

#include "driver/host/host_driver.hpp"

namespace tensormem::test {

class FailingDriver : public Driver {
 public:
  // The `nth` call from now on fails, once; 0: none does.
  void fail_at(std::uint64_t nth) {
    calls_ = 0;
    nth_ = nth;
  }
  std::uint64_t calls() const { return calls_; }
  // From now on, calls of virtual memory count as well: pages made, mapped, unmapped, and access to them.
  void include_virtual_memory() { includes_virtual_memory_ = true; }
  bool has_failed() const { return nth_ != 0 && calls_ >= nth_; }

  const char* name() const noexcept override { return "host"; }
  Status device_count(std::int32_t* count) override { return host_.device_count(count); }
  Status device_info(std::int32_t device, DeviceInfo* info) override { return host_.device_info(device, info); }
  Status memory_info(std::int32_t device, MemoryInfo* info) override { return host_.memory_info(device, info); }
  Status allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                  std::uint64_t* address) override {
    TM_TRY(go());
    return host_.allocate(device, nbytes, options, address);
  }
  Status deallocate(std::int32_t device, std::uint64_t address, std::uint64_t nbytes,
                    const AllocationOptions& options) override {
    return host_.deallocate(device, address, nbytes, options);
  }
  Status pin(std::uint64_t address, std::uint64_t nbytes) override { return host_.pin(address, nbytes); }
  Status unpin(std::uint64_t address, std::uint64_t nbytes) override { return host_.unpin(address, nbytes); }
  Status allocate_async(std::int32_t device, AsyncPool pool, std::uint64_t nbytes, StreamId stream,
                        std::uint64_t* address) override {
    TM_TRY(go());
    return host_.allocate_async(device, pool, nbytes, stream, address);
  }
  Status deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, StreamId stream) override {
    return host_.deallocate_async(device, address, nbytes, stream);
  }
  Status trim_async(std::int32_t device, AsyncPool pool, std::uint64_t keep_bytes) override {
    return host_.trim_async(device, pool, keep_bytes);
  }
  Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) override {
    TM_TRY(go());
    return host_.prefetch(address, nbytes, device, stream);
  }
  Status stream_create(std::int32_t device, StreamId* stream) override { return host_.stream_create(device, stream); }
  Status stream_destroy(StreamId stream) override { return host_.stream_destroy(stream); }
  Status stream_synchronize(StreamId stream) override {
    TM_TRY(go());
    return host_.stream_synchronize(stream);
  }
  Status stream_query(StreamId stream, bool* done) override {
    TM_TRY(go());
    return host_.stream_query(stream, done);
  }
  Status stream_export(StreamId stream, std::uint64_t* handle) override { return host_.stream_export(stream, handle); }
  Status stream_import(std::int32_t device, std::uint64_t handle, StreamId* stream) override {
    return host_.stream_import(device, handle, stream);
  }
  bool stream_is_valid(StreamId stream) const noexcept override { return host_.stream_is_valid(stream); }
  bool stream_is_inline(StreamId stream) const noexcept override { return host_.stream_is_inline(stream); }
  Status event_create(std::int32_t device, EventHandle* event) override {
    TM_TRY(go());
    return host_.event_create(device, event);
  }
  Status event_destroy(EventHandle event) override { return host_.event_destroy(event); }
  Status event_record(EventHandle event, StreamId stream) override {
    TM_TRY(go());
    return host_.event_record(event, stream);
  }
  Status event_query(EventHandle event, bool* done) override {
    TM_TRY(go());
    return host_.event_query(event, done);
  }
  Status event_synchronize(EventHandle event) override { return host_.event_synchronize(event); }
  Status event_elapsed(EventHandle start, EventHandle end, double* seconds) override {
    return host_.event_elapsed(start, end, seconds);
  }
  Status stream_wait_event(StreamId stream, EventHandle event) override {
    TM_TRY(go());
    return host_.stream_wait_event(stream, event);
  }
  Status copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream) override {
    TM_TRY(go());
    return host_.copy(destination, source, shape, stream);
  }
  Status fill(const Pitched& destination, const CopyShape& shape, std::uint64_t value, std::uint32_t element_bytes,
              StreamId stream) override {
    TM_TRY(go());
    return host_.fill(destination, shape, value, element_bytes, stream);
  }
  Status launch_host(HostFunction function, void* argument, StreamId stream) override {
    return host_.launch_host(function, argument, stream);
  }
  Status granularity(std::int32_t device, Granularity* granularity) override {
    return host_.granularity(device, granularity);
  }
  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) override {
    return host_.reserve(size, alignment, address);
  }
  Status release(std::uint64_t address, std::uint64_t size) override { return host_.release(address, size); }
  Status physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                         PhysicalHandle* physical) override {
    TM_TRY(go_virtual());
    return host_.physical_create(device, size, options, physical);
  }
  Status physical_destroy(PhysicalHandle physical) override { return host_.physical_destroy(physical); }
  Status physical_info(PhysicalHandle physical, PhysicalInfo* info) override {
    return host_.physical_info(physical, info);
  }
  Status map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical, std::uint64_t offset) override {
    TM_TRY(go_virtual());
    return host_.map(address, size, physical, offset);
  }
  Status unmap(std::uint64_t address, std::uint64_t size) override {
    TM_TRY(go_virtual());
    return host_.unmap(address, size);
  }
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override {
    TM_TRY(go_virtual());
    return host_.set_access(address, size, device, access);
  }
  Status physical_export(PhysicalHandle physical, std::int32_t* fd) override {
    return host_.physical_export(physical, fd);
  }
  Status physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) override {
    return host_.physical_import(device, fd, physical);
  }

 private:
  Status go() {
    const std::uint64_t call = ++calls_;
    return call == nth_ ? Status::driver_error(EIO, "a planned failure") : Status();
  }

  Status go_virtual() { return includes_virtual_memory_ ? go() : Status(); }

  HostDriver& host_ = host_driver();
  bool includes_virtual_memory_ = false;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> nth_{0};
};

}  // namespace tensormem::test

// Owns: a driver of somebody else's: the host driver under another name, which counts its copies. Compiled by the tests
// against the headers and the library, as a package of its own would be. Must not know: Python.
#include <atomic>

#include "driver/host/host_driver.hpp"

namespace {

using namespace tensormem;

class ToyDriver final : public Driver {
 public:
  const char* name() const noexcept override { return "toy"; }
  Status device_count(std::int32_t* count) override { return host_.device_count(count); }
  Status device_info(std::int32_t device, DeviceInfo* info) override { return host_.device_info(device, info); }
  Status memory_info(std::int32_t device, MemoryInfo* info) override { return host_.memory_info(device, info); }
  Status allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                  std::uint64_t* address) override {
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
    return host_.allocate_async(device, pool, nbytes, stream, address);
  }
  Status deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, StreamId stream) override {
    return host_.deallocate_async(device, address, nbytes, stream);
  }
  Status trim_async(std::int32_t device, AsyncPool pool, std::uint64_t keep_bytes) override {
    return host_.trim_async(device, pool, keep_bytes);
  }
  Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) override {
    return host_.prefetch(address, nbytes, device, stream);
  }
  Status stream_create(std::int32_t device, StreamId* stream) override { return host_.stream_create(device, stream); }
  Status stream_destroy(StreamId stream) override { return host_.stream_destroy(stream); }
  Status stream_synchronize(StreamId stream) override { return host_.stream_synchronize(stream); }
  Status stream_query(StreamId stream, bool* done) override { return host_.stream_query(stream, done); }
  Status stream_export(StreamId stream, std::uint64_t* handle) override { return host_.stream_export(stream, handle); }
  Status stream_import(std::int32_t device, std::uint64_t handle, StreamId* stream) override {
    return host_.stream_import(device, handle, stream);
  }
  bool stream_is_valid(StreamId stream) const noexcept override { return host_.stream_is_valid(stream); }
  bool stream_is_inline(StreamId stream) const noexcept override { return host_.stream_is_inline(stream); }
  Status event_create(std::int32_t device, EventHandle* event) override { return host_.event_create(device, event); }
  Status event_destroy(EventHandle event) override { return host_.event_destroy(event); }
  Status event_record(EventHandle event, StreamId stream) override { return host_.event_record(event, stream); }
  Status event_query(EventHandle event, bool* done) override { return host_.event_query(event, done); }
  Status event_synchronize(EventHandle event) override { return host_.event_synchronize(event); }
  Status event_elapsed(EventHandle start, EventHandle end, double* seconds) override {
    return host_.event_elapsed(start, end, seconds);
  }
  Status stream_wait_event(StreamId stream, EventHandle event) override {
    return host_.stream_wait_event(stream, event);
  }
  Status copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream) override {
    ++copies_;
    return host_.copy(destination, source, shape, stream);
  }
  Status fill(const Pitched& destination, const CopyShape& shape, std::uint64_t value, std::uint32_t element_bytes,
              StreamId stream) override {
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
    return host_.physical_create(device, size, options, physical);
  }
  Status physical_destroy(PhysicalHandle physical) override { return host_.physical_destroy(physical); }
  Status physical_info(PhysicalHandle physical, PhysicalInfo* info) override {
    return host_.physical_info(physical, info);
  }
  Status map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical, std::uint64_t offset) override {
    return host_.map(address, size, physical, offset);
  }
  Status unmap(std::uint64_t address, std::uint64_t size) override { return host_.unmap(address, size); }
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override {
    return host_.set_access(address, size, device, access);
  }
  Status physical_export(PhysicalHandle physical, std::int32_t* fd) override {
    return host_.physical_export(physical, fd);
  }
  Status physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) override {
    return host_.physical_import(device, fd, physical);
  }

  std::int64_t copies() const { return copies_; }

 private:
  Driver& host_ = host_driver();
  std::atomic<std::int64_t> copies_{0};
};

ToyDriver& toy() {
  static ToyDriver driver;
  return driver;
}

}  // namespace

extern "C" void* toy_driver() { return static_cast<Driver*>(&toy()); }
extern "C" std::int64_t toy_copies() { return toy().copies(); }

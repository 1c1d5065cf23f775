// Owns: one GPU behind the waist of driver.hpp: checks what is asked, turns numbers into the vendor's handles, and says
// the exact reason where the vendor only says "invalid". Several devices share a platform; `home` is the one whose
// default stream is meant by kDefaultStream.
// Must not know: which vendor it is.
#pragma once

#include "driver/driver.hpp"
#include "driver/gpu/gpu_platform.hpp"

namespace tensormem {

class GpuDriver final : public Driver {
 public:
  GpuDriver(GpuPlatform& platform, std::int32_t home) noexcept
      : platform_(platform), api_(platform.api()), home_(home) {}

  std::int32_t home() const noexcept override { return home_; }
  const GpuPlatform& platform() const noexcept { return platform_; }

  const char* name() const noexcept override { return api_.name(); }
  Status device_count(std::int32_t* count) override;
  Status device_info(std::int32_t device, DeviceInfo* info) override;
  Status memory_info(std::int32_t device, MemoryInfo* info) override;

  Status allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                  std::uint64_t* address) override;
  Status deallocate(std::int32_t device, std::uint64_t address, std::uint64_t nbytes,
                    const AllocationOptions& options) override;
  Status pin(std::uint64_t address, std::uint64_t nbytes) override;
  Status unpin(std::uint64_t address, std::uint64_t nbytes) override;
  Status async_pool_create(std::int32_t device, std::uint64_t keep_bytes, AsyncPool* pool) override;
  Status async_pool_destroy(AsyncPool pool) override;
  Status async_pool_keep(AsyncPool pool, std::uint64_t keep_bytes) override;
  Status allocate_async(std::int32_t device, AsyncPool pool, std::uint64_t nbytes, StreamId stream,
                        std::uint64_t* address) override;
  Status deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, StreamId stream) override;
  Status trim_async(std::int32_t device, AsyncPool pool, std::uint64_t keep_bytes) override;
  Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) override;
  Status advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device) override;
  Status external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes, std::uint64_t* address) override;
  Status external_release(std::uint64_t address) override;

  Status stream_create(std::int32_t device, StreamId* stream) override;
  Status stream_destroy(StreamId stream) override;
  Status stream_synchronize(StreamId stream) override;
  Status stream_wait(StreamId stream, const Wait& wait) override;
  Status stream_close(StreamId stream, const Wait& wait) override;
  Status stream_query(StreamId stream, bool* done) override;
  Status stream_export(StreamId stream, std::uint64_t* native_handle) override;
  Status stream_import(std::int32_t device, std::uint64_t native_handle, StreamId* stream) override;
  Status stream_is_capturing(StreamId stream, bool* capturing) override;
  bool stream_is_valid(StreamId stream) const noexcept override;
  bool stream_is_inline(StreamId) const noexcept override { return false; }

  Status event_create(std::int32_t device, EventHandle* event) override { return make_event(device, false, event); }
  Status event_create_timed(std::int32_t device, EventHandle* event) override {
    return make_event(device, true, event);
  }
  Status event_destroy(EventHandle event) override;
  Status event_record(EventHandle event, StreamId stream) override;
  Status event_query(EventHandle event, bool* done) override;
  Status event_synchronize(EventHandle event) override;
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
  Status unmap(std::uint64_t address, std::uint64_t size) override;
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override;
  Status physical_export(PhysicalHandle physical, std::int32_t* fd) override;
  Status physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) override;

 private:
  Status check_device(std::int32_t device) const noexcept;
  Status find_stream(StreamId stream, gpu::StreamRef* ref) const noexcept;
  // For callers that know already that calls may be made.
  Status find_usable_stream(StreamId stream, gpu::StreamRef* ref) const noexcept;
  // Whether what is known by a handle is still what it was: the driver may have given it to another stream.
  Status find_known(gpu::StreamRef ref, StreamId* known, std::uint64_t* serial);
  Status note_stream(const GpuPlatform::StreamItem& item, StreamId* stream);
  // Takes a stream that another library destroyed out of the books, once the device has done its work.
  void forget_stream(StreamId stream, std::int32_t device) noexcept;
  // An answer that says that the stream's handle is none is told by name.
  Status heed(Status status, StreamId stream);
  Status heed_gone(Status status, StreamId stream, std::int32_t device, bool* done);
  // Memory that exists from a point of a stream to another is not for graphs, which run as often as they like.
  Status check_not_capturing(gpu::StreamRef queue, StreamId stream);
  Status find_event(EventHandle event, gpu::EventRef* ref) const noexcept;
  Status make_event(std::int32_t device, bool timed, EventHandle* event);
  Status record_elsewhere(EventHandle event, bool timed, gpu::StreamRef queue);
  Status find_pool(AsyncPool pool, gpu::PoolRef* ref) const noexcept;
  template <typename Call>
  Status give_back(std::int32_t device, Call call);
  // Finds out whose memory it is, where that can matter.
  Status find_place(Pitched* side, std::int32_t asker) const;
  // Gives `work` a stream of `device` (kHostPlace: of any) whose work is in the order of `stream`.
  template <typename Work>
  Status run_at(std::int32_t device, StreamId stream, gpu::StreamRef queue, Work work);
  static bool is_between(const Pitched& to, const Pitched& from) noexcept;
  void join_devices(const Pitched& to, const Pitched& from, const CopyShape& shape) noexcept;
  Status copy_box(Pitched to, Pitched from, const CopyShape& shape, gpu::StreamRef queue);
  // The smallest unit of mappings, if it was asked before; 1 otherwise.
  std::uint64_t grain_of(std::int32_t device) noexcept;
  // With the lock.
  Status find_physical(PhysicalHandle handle, GpuPlatform::Physical** physical) noexcept;
  Status begin_physical_use(PhysicalHandle handle, GpuPlatform::Physical* physical);
  void end_physical_use(PhysicalHandle handle) noexcept;
  Status allocate_aligned(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                          std::uint64_t* address);
  Status clear(std::int32_t device, std::uint64_t address, std::uint64_t nbytes, MemoryKind kind);
  // Tells a shortage of memory by its own code, with what there is.
  Status explain_shortage(Status status, std::int32_t device, std::uint64_t requested, Code code);
  Status fill_plane(const Pitched& to, const CopyShape& shape, std::uint64_t value, std::uint32_t element_bytes,
                    gpu::StreamRef queue);
  Status repeat_first_row(const Pitched& to, const CopyShape& shape, gpu::StreamRef queue);

  GpuPlatform& platform_;
  gpu::GpuApi& api_;
  const std::int32_t home_;
};

}  // namespace tensormem

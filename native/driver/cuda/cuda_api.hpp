// Owns: CUDA behind the interface of gpu_api.hpp: one call of the driver each, in the primary context of the right
// device, which is pushed for the call and popped after it, whatever the call said.
// Must not know: stream ids, books, resources.
#pragma once

#include <array>
#include <atomic>

#include "driver/cuda/function_table.hpp"
#include "driver/gpu/gpu_api.hpp"

namespace tensormem::cuda {

// Opens the driver; null, and why, when it cannot be used.
std::unique_ptr<gpu::GpuApi> open_api(const std::string& path, bool count, std::string* why);

class CudaApi final : public gpu::GpuApi {
 public:
  static constexpr std::int32_t kMaxDevices = 64;

  CudaApi(const FunctionTable& functions, std::int32_t count) : f_(functions), count_(count) {}

  const char* name() const noexcept override { return "cuda"; }
  std::int32_t device_count() const noexcept override { return count_; }
  std::int32_t version() const noexcept override { return f_.driver_version; }
  bool is_simulated() const noexcept override { return f_.simulated; }
  std::vector<const char*> functions() const override { return {std::begin(kFunctionNames), std::end(kFunctionNames)}; }
  gpu::ErrorNumbers numbers() const noexcept override { return gpu::ErrorNumbers::cuda; }
  const char* library() const noexcept override { return f_.library.c_str(); }
  std::vector<gpu::CallCount> calls() const override { return calls_of(f_); }
  bool attribute(std::int32_t device, gpu::DeviceAttribute attribute, std::int32_t* value) noexcept override;
  const char* error_name(std::int32_t code) const noexcept override;
  const char* error_text(std::int32_t code) const noexcept override;
  Status device_info(std::int32_t device, DeviceInfo* info) override;
  Status memory_info(std::int32_t device, MemoryInfo* info) override;
  bool is_out_of_memory(std::int32_t code) const noexcept override { return code == kOutOfMemory; }
  void close() noexcept override;

  Status allocate(std::int32_t device, MemoryKind kind, std::uint64_t nbytes, std::uint64_t* address) override;
  Status deallocate(std::int32_t device, MemoryKind kind, std::uint64_t address) override;
  Status pin(std::int32_t device, std::uint64_t address, std::uint64_t nbytes) override;
  Status unpin(std::int32_t device, std::uint64_t address) override;
  Status pool_create(std::int32_t device, gpu::NativePool* pool) override;
  Status pool_destroy(gpu::PoolRef pool) override;
  Status pool_keep(gpu::PoolRef pool, std::uint64_t keep_bytes) override;
  Status pool_trim(gpu::PoolRef pool, std::uint64_t keep_bytes) override;
  Status allocate_async(gpu::PoolRef pool, std::uint64_t nbytes, gpu::StreamRef stream,
                        std::uint64_t* address) override;
  Status deallocate_async(std::uint64_t address, gpu::StreamRef stream) override;
  Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t to_device, gpu::StreamRef stream) override;
  Status advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device) override;

  Status external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes,
                         gpu::NativeExternal* external) override;
  Status external_map(const gpu::ExternalRef& external, std::uint64_t nbytes, std::uint64_t* address) override;
  Status external_unmap(const gpu::ExternalRef& external) override;
  Status external_destroy(const gpu::ExternalRef& external) override;

  Status stream_create(std::int32_t device, gpu::NativeStream* stream) override;
  Status stream_destroy(gpu::StreamRef stream) override;
  Status stream_synchronize(gpu::StreamRef stream) override;
  Status stream_query(gpu::StreamRef stream, bool* done) override;
  Status stream_is_capturing(gpu::StreamRef stream, bool* capturing) override;
  Status stream_serial(gpu::StreamRef stream, std::uint64_t* serial) override;
  Status device_synchronize(std::int32_t device) override;
  bool is_gone(std::int32_t code) const noexcept override {
    constexpr Result kNoHandle = 400;
    constexpr Result kNoContext = 709;
    return code == kNoHandle || code == kNoContext;
  }
  Status stream_device(std::int32_t guess, gpu::NativeStream stream, std::int32_t* device) override;
  Status event_create(std::int32_t device, bool timed, gpu::NativeEvent* event) override;
  Status event_destroy(gpu::EventRef event) override;
  Status event_record(gpu::EventRef event, gpu::StreamRef stream) override;
  Status event_query(gpu::EventRef event, bool* done) override;
  Status event_synchronize(gpu::EventRef event) override;
  Status event_elapsed(gpu::EventRef start, gpu::EventRef end, double* seconds) override;
  Status stream_wait_event(gpu::StreamRef stream, gpu::EventRef event) override;

  Status place_of(std::int32_t asker, std::uint64_t address, std::int32_t* device) override;
  bool can_reach(std::int32_t worker, std::int32_t owner) noexcept override;
  Status peer_enable(std::int32_t worker, std::int32_t owner) override;
  Status pool_open(gpu::PoolRef pool, std::int32_t worker) override;
  Status copy_line(std::uint64_t to, std::uint64_t from, std::uint64_t nbytes, gpu::StreamRef stream) override;
  Status copy_box(const Pitched& to, const Pitched& from, const CopyShape& shape, gpu::StreamRef stream) override;
  Status copy_line_between(const Pitched& to, const Pitched& from, std::uint64_t nbytes,
                           gpu::StreamRef stream) override;
  Status copy_box_between(const Pitched& to, const Pitched& from, const CopyShape& shape,
                          gpu::StreamRef stream) override;
  Status fill(const gpu::FillRows& rows, gpu::StreamRef stream) override;
  bool fills_rows(std::uint32_t) const noexcept override { return true; }
  Status fill_wide(std::uint64_t address, std::uint64_t value, std::uint64_t count, gpu::StreamRef stream) override;
  Status launch_host(HostFunction function, void* argument, gpu::StreamRef stream) override;

  Status granularity(std::int32_t device, Granularity* granularity) override;
  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) override;
  Status release(std::uint64_t address, std::uint64_t size) override;
  Status physical_create(std::int32_t device, std::uint64_t size, bool exportable,
                         gpu::NativePhysical* physical) override;
  Status physical_destroy(gpu::NativePhysical physical) override;
  Status map(std::uint64_t address, std::uint64_t size, gpu::NativePhysical physical) override;
  Status unmap(std::uint64_t address, std::uint64_t size) override;
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override;
  Status physical_export(gpu::NativePhysical physical, std::int32_t* fd) override;
  Status physical_import(std::int32_t device, std::int32_t fd, gpu::NativePhysical* physical) override;

 private:
  Status context_of(std::int32_t device, ContextHandle* context);
  // Makes `call` in the context of `device`.
  template <typename Call>
  Status in_context(std::int32_t device, const char* function, Call call);
  // The same for a call that a capture of any thread would forbid, and be ended by, though it has nothing to do with
  // it.
  template <typename Call>
  Status beside_captures(std::int32_t device, const char* function, Call call);
  template <typename Call>
  Status on_stream(gpu::StreamRef stream, const char* function, Call call);

  const FunctionTable f_;
  const std::int32_t count_;
  std::array<std::atomic<ContextHandle>, kMaxDevices> contexts_{};  // retained primary contexts; null: not yet
};

}  // namespace tensormem::cuda

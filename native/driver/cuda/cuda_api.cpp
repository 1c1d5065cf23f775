// Devices, contexts, streams, events, copies and fills. Memory: cuda_memory.cpp.
#include "driver/cuda/cuda_api.hpp"

#include <algorithm>
#include <cstring>

#include "driver/cuda/in_context.hpp"

namespace tensormem::cuda {

std::unique_ptr<gpu::GpuApi> open_api(const std::string& path, bool count, std::string* why) {
  FunctionTable functions;
  if (!load_functions(path, count, &functions, why)) return nullptr;
  int devices = 0;
  Result result = functions.cuInit(0);
  const char* call = "cuInit";
  if (result == kSuccess) {
    result = functions.cuDeviceGetCount(&devices);
    call = "cuDeviceGetCount";
  }
  if (result == kNoDevice || (result == kSuccess && devices == 0)) {
    *why = "the CUDA driver is there, but it finds no device";
    return nullptr;
  }
  if (result != kSuccess) {
    const char* name = nullptr;
    (void)functions.cuGetErrorName(result, &name);
    *why = std::string(call) + " failed: " + (name != nullptr ? name : "unknown") + " (" + std::to_string(result) + ")";
    return nullptr;
  }
  return std::make_unique<CudaApi>(functions, std::min(devices, CudaApi::kMaxDevices));
}

const char* CudaApi::error_name(std::int32_t code) const noexcept {
  const char* text = nullptr;
  return f_.cuGetErrorName(code, &text) == kSuccess ? text : nullptr;
}

const char* CudaApi::error_text(std::int32_t code) const noexcept {
  const char* text = nullptr;
  return f_.cuGetErrorString(code, &text) == kSuccess ? text : nullptr;
}

// The primary context of a device, retained once: of two threads that are the first, one lets its own go again.
Status CudaApi::context_of(std::int32_t device, ContextHandle* context) {
  std::atomic<ContextHandle>& kept = contexts_[static_cast<std::size_t>(device)];
  ContextHandle found = kept.load(std::memory_order_acquire);
  if (found == nullptr) [[unlikely]] {
    ContextHandle retained = nullptr;
    TM_TRY(answer(f_.cuDevicePrimaryCtxRetain(&retained, device), "cuDevicePrimaryCtxRetain"));
    if (kept.compare_exchange_strong(found, retained, std::memory_order_acq_rel)) {
      found = retained;
    } else {
      (void)f_.cuDevicePrimaryCtxRelease(device);
    }
  }
  *context = found;
  return {};
}

void CudaApi::close() noexcept {
  for (std::int32_t device = 0; device < count_; ++device) {
    std::atomic<ContextHandle>& kept = contexts_[static_cast<std::size_t>(device)];
    if (kept.exchange(nullptr) != nullptr) (void)f_.cuDevicePrimaryCtxRelease(device);
  }
}

Status CudaApi::device_info(std::int32_t device, DeviceInfo* info) {
  DeviceInfo found;
  std::size_t total = 0;
  TM_TRY(answer(f_.cuDeviceGetName(found.name, sizeof found.name, device), "cuDeviceGetName"));
  TM_TRY(answer(f_.cuDeviceTotalMem(&total, device), "cuDeviceTotalMem"));
  using gpu::DeviceAttribute;
  const auto says = [&](DeviceAttribute fact) { return gpu::has(*this, device, fact); };
  if (!attribute(device, DeviceAttribute::host_numa_node, &found.numa_node)) found.numa_node = -1;
  found.total_bytes = total;
  found.simulated = f_.simulated;
  found.managed_memory = says(DeviceAttribute::managed_memory) && f_.cuMemAllocManaged != nullptr;
  found.virtual_memory = says(DeviceAttribute::virtual_memory) && f_.cuMemCreate != nullptr;
  found.memory_pools = says(DeviceAttribute::memory_pools) && f_.cuMemAllocFromPoolAsync != nullptr;
  found.posix_handles = found.virtual_memory && says(DeviceAttribute::posix_handles);
  found.concurrent_managed_access = found.managed_memory && says(DeviceAttribute::concurrent_managed_access);
  found.integrated = says(DeviceAttribute::integrated);
  found.host_native_atomics = says(DeviceAttribute::host_native_atomics);
  found.pageable_memory_access = says(DeviceAttribute::pageable_memory_access);
  *info = found;
  return {};
}

bool CudaApi::attribute(std::int32_t device, gpu::DeviceAttribute attribute, std::int32_t* value) noexcept {
  int answered = 0;
  if (f_.cuDeviceGetAttribute(&answered, gpu::numbers_of(attribute).cuda, device) != kSuccess) return false;
  *value = answered;
  return true;
}

Status CudaApi::memory_info(std::int32_t device, MemoryInfo* info) {
  std::size_t free = 0;
  std::size_t total = 0;
  TM_TRY(in_context(device, "cuMemGetInfo", [&] { return f_.cuMemGetInfo(&free, &total); }));
  *info = {free, total};
  return {};
}

// --- Streams and events ------------------------------------------------------------------------------------------

Status CudaApi::stream_create(std::int32_t device, gpu::NativeStream* stream) {
  // Not tied to the legacy stream: order is what is asked for, never what happens to be.
  return in_context(device, "cuStreamCreate", [&] { return f_.cuStreamCreate(stream, kStreamNonBlocking); });
}

Status CudaApi::stream_destroy(gpu::StreamRef stream) {
  return in_context(stream.device, "cuStreamDestroy", [&] { return f_.cuStreamDestroy(stream.handle); });
}

Status CudaApi::stream_synchronize(gpu::StreamRef stream) {
  return beside_captures(stream.device, "cuStreamSynchronize", [&] { return f_.cuStreamSynchronize(stream.handle); });
}

Status CudaApi::stream_query(gpu::StreamRef stream, bool* done) {
  Result result = kSuccess;
  TM_TRY(beside_captures(stream.device, "cuStreamQuery", [&] {
    result = f_.cuStreamQuery(stream.handle);
    return result == kNotReady ? Result{kSuccess} : result;
  }));
  *done = result == kSuccess;
  return {};
}

Status CudaApi::stream_is_capturing(gpu::StreamRef stream, bool* capturing) {
  int state = 0;
  *capturing = false;
  if (f_.cuStreamIsCapturing == nullptr) return {};
  // Only an answer about captures is one; what else is wrong is told by the call that follows.
  constexpr Result kFirst = 900;
  constexpr Result kLast = 908;
  Status asked =
      in_context(stream.device, "cuStreamIsCapturing", [&] { return f_.cuStreamIsCapturing(stream.handle, &state); });
  if (!asked.ok()) {
    const Result code = asked.failure().driver_code;
    return code >= kFirst && code <= kLast ? std::move(asked) : Status();
  }
  *capturing = state != 0;
  return {};
}

Status CudaApi::stream_serial(gpu::StreamRef stream, std::uint64_t* serial) {
  *serial = 0;
  if (f_.cuStreamGetId == nullptr) return {};
  return in_context(stream.device, "cuStreamGetId", [&] { return f_.cuStreamGetId(stream.handle, serial); });
}

Status CudaApi::device_synchronize(std::int32_t device) {
  return in_context(device, "cuCtxSynchronize", [&] { return f_.cuCtxSynchronize(); });
}

Status CudaApi::stream_device(std::int32_t guess, gpu::NativeStream stream, std::int32_t* device) {
  ContextHandle context = nullptr;
  TM_TRY(in_context(guess, "cuStreamGetCtx", [&] { return f_.cuStreamGetCtx(stream, &context); }));
  TM_TRY(answer(f_.cuCtxPushCurrent(context), "cuCtxPushCurrent"));
  DeviceNumber found = guess;
  const Result result = f_.cuCtxGetDevice(&found);
  (void)f_.cuCtxPopCurrent(nullptr);
  TM_TRY(answer(result, "cuCtxGetDevice"));
  // All of our work is in the primary contexts: a stream of another one cannot be ordered with it.
  ContextHandle primary = nullptr;
  TM_TRY(context_of(found, &primary));
  if (context != primary)
    return Status::fail(Code::stream_misuse, "the stream is of another context than the device's primary one",
                        reinterpret_cast<std::uint64_t>(stream));
  *device = found;
  return {};
}

Status CudaApi::event_create(std::int32_t device, bool timed, gpu::NativeEvent* event) {
  return in_context(device, "cuEventCreate", [&] { return f_.cuEventCreate(event, timed ? 0 : kEventDisableTiming); });
}

Status CudaApi::event_destroy(gpu::EventRef event) {
  return in_context(event.device, "cuEventDestroy", [&] { return f_.cuEventDestroy(event.handle); });
}

Status CudaApi::event_record(gpu::EventRef event, gpu::StreamRef stream) {
  return in_context(stream.device, "cuEventRecord", [&] { return f_.cuEventRecord(event.handle, stream.handle); });
}

Status CudaApi::event_query(gpu::EventRef event, bool* done) {
  Result result = kSuccess;
  TM_TRY(beside_captures(event.device, "cuEventQuery", [&] {
    result = f_.cuEventQuery(event.handle);
    return result == kNotReady ? Result{kSuccess} : result;
  }));
  *done = result == kSuccess;
  return {};
}

Status CudaApi::event_synchronize(gpu::EventRef event) {
  return beside_captures(event.device, "cuEventSynchronize", [&] { return f_.cuEventSynchronize(event.handle); });
}

Status CudaApi::event_elapsed(gpu::EventRef start, gpu::EventRef end, double* seconds) {
  float milliseconds = 0;
  TM_TRY(in_context(start.device, "cuEventElapsedTime",
                    [&] { return f_.cuEventElapsedTime(&milliseconds, start.handle, end.handle); }));
  *seconds = static_cast<double>(milliseconds) * 1e-3;
  return {};
}

Status CudaApi::stream_wait_event(gpu::StreamRef stream, gpu::EventRef event) {
  return in_context(stream.device, "cuStreamWaitEvent",
                    [&] { return f_.cuStreamWaitEvent(stream.handle, event.handle, 0); });
}

// --- Work --------------------------------------------------------------------------------------------------------

Status CudaApi::place_of(std::int32_t asker, std::uint64_t address, std::int32_t* device) {
  int memory_type = 0;  // what the driver does not know stays as it is: pageable memory
  unsigned is_managed = 0;
  int ordinal = kHostPlace;
  int attributes[] = {kPointerMemoryType, kPointerIsManaged, kPointerDeviceOrdinal};
  void* answers[] = {&memory_type, &is_managed, &ordinal};
  TM_TRY(in_context(asker, "cuPointerGetAttributes",
                    [&] { return f_.cuPointerGetAttributes(3, attributes, answers, address); }));
  *device = memory_type == kMemoryDevice && is_managed == 0 ? ordinal : kHostPlace;
  return {};
}

bool CudaApi::can_reach(std::int32_t worker, std::int32_t owner) noexcept {
  int can = 0;
  if (f_.cuDeviceCanAccessPeer == nullptr || f_.cuCtxEnablePeerAccess == nullptr) return false;
  return f_.cuDeviceCanAccessPeer(&can, worker, owner) == kSuccess && can != 0;
}

Status CudaApi::peer_enable(std::int32_t worker, std::int32_t owner) {
  ContextHandle theirs = nullptr;
  TM_TRY(context_of(owner, &theirs));
  return beside_captures(worker, "cuCtxEnablePeerAccess", [&] {
    const Result result = f_.cuCtxEnablePeerAccess(theirs, 0);
    return result == kPeerAlreadyEnabled ? Result{kSuccess} : result;
  });
}

Status CudaApi::copy_line_between(const Pitched& to, const Pitched& from, std::uint64_t nbytes, gpu::StreamRef stream) {
  ContextHandle to_context = nullptr;
  ContextHandle from_context = nullptr;
  TM_TRY(context_of(to.device, &to_context));
  TM_TRY(context_of(from.device, &from_context));
  return in_context(stream.device, "cuMemcpyPeerAsync", [&] {
    return f_.cuMemcpyPeerAsync(to.address, to_context, from.address, from_context, nbytes, stream.handle);
  });
}

Status CudaApi::copy_box_between(const Pitched& to, const Pitched& from, const CopyShape& shape,
                                 gpu::StreamRef stream) {
  Copy3D box;
  TM_TRY(context_of(to.device, &box.destination.context));
  TM_TRY(context_of(from.device, &box.source.context));
  box.source.memory_type = box.destination.memory_type = kMemoryDevice;
  box.source.device = from.address;
  box.source.pitch = from.row_pitch;
  box.source.height = shape.depth == 1 ? shape.height : from.plane_pitch / from.row_pitch;
  box.destination.device = to.address;
  box.destination.pitch = to.row_pitch;
  box.destination.height = shape.depth == 1 ? shape.height : to.plane_pitch / to.row_pitch;
  box.width_bytes = shape.width;
  box.height = shape.height;
  box.depth = shape.depth;
  return in_context(stream.device, "cuMemcpy3DPeerAsync", [&] { return f_.cuMemcpy3DPeerAsync(&box, stream.handle); });
}

Status CudaApi::copy_line(std::uint64_t to, std::uint64_t from, std::uint64_t nbytes, gpu::StreamRef stream) {
  return in_context(stream.device, "cuMemcpyAsync", [&] { return f_.cuMemcpyAsync(to, from, nbytes, stream.handle); });
}

Status CudaApi::copy_box(const Pitched& to, const Pitched& from, const CopyShape& shape, gpu::StreamRef stream) {
  if (shape.depth == 1) {
    Copy2D flat;
    flat.source.memory_type = flat.destination.memory_type = kMemoryUnified;
    flat.source.device = from.address;
    flat.source.pitch = from.row_pitch;
    flat.destination.device = to.address;
    flat.destination.pitch = to.row_pitch;
    flat.width_bytes = shape.width;
    flat.height = shape.height;
    return in_context(stream.device, "cuMemcpy2DAsync", [&] { return f_.cuMemcpy2DAsync(&flat, stream.handle); });
  }
  Copy3D box;
  box.source.memory_type = box.destination.memory_type = kMemoryUnified;
  box.source.device = from.address;
  box.source.pitch = from.row_pitch;
  box.source.height = from.plane_pitch / from.row_pitch;
  box.destination.device = to.address;
  box.destination.pitch = to.row_pitch;
  box.destination.height = to.plane_pitch / to.row_pitch;
  box.width_bytes = shape.width;
  box.height = shape.height;
  box.depth = shape.depth;
  return in_context(stream.device, "cuMemcpy3DAsync", [&] { return f_.cuMemcpy3DAsync(&box, stream.handle); });
}

Status CudaApi::fill(const gpu::FillRows& rows, gpu::StreamRef stream) {
  const bool flat = rows.height == 1;
  const auto byte = static_cast<unsigned char>(rows.value);
  const auto word = static_cast<unsigned short>(rows.value);
  const std::uint64_t to = rows.address;
  switch (rows.element_bytes) {
    case 1:
      return in_context(stream.device, flat ? "cuMemsetD8Async" : "cuMemsetD2D8Async", [&] {
        return flat ? f_.cuMemsetD8Async(to, byte, rows.count, stream.handle)
                    : f_.cuMemsetD2D8Async(to, rows.row_pitch, byte, rows.count, rows.height, stream.handle);
      });
    case 2:
      return in_context(stream.device, flat ? "cuMemsetD16Async" : "cuMemsetD2D16Async", [&] {
        return flat ? f_.cuMemsetD16Async(to, word, rows.count, stream.handle)
                    : f_.cuMemsetD2D16Async(to, rows.row_pitch, word, rows.count, rows.height, stream.handle);
      });
    default:
      return in_context(stream.device, flat ? "cuMemsetD32Async" : "cuMemsetD2D32Async", [&] {
        return flat ? f_.cuMemsetD32Async(to, rows.value, rows.count, stream.handle)
                    : f_.cuMemsetD2D32Async(to, rows.row_pitch, rows.value, rows.count, rows.height, stream.handle);
      });
  }
}

// Both halves as columns of a box that is one element wide.
Status CudaApi::fill_wide(std::uint64_t address, std::uint64_t value, std::uint64_t count, gpu::StreamRef stream) {
  TM_TRY(fill({address, 8, static_cast<std::uint32_t>(value), 4, 1, count}, stream));
  return fill({address + 4, 8, static_cast<std::uint32_t>(value >> 32), 4, 1, count}, stream);
}

Status CudaApi::launch_host(HostFunction function, void* argument, gpu::StreamRef stream) {
  return in_context(stream.device, "cuLaunchHostFunc",
                    [&] { return f_.cuLaunchHostFunc(stream.handle, function, argument); });
}

}  // namespace tensormem::cuda

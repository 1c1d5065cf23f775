// Devices, streams, events, copies and fills. Memory: hip_memory.cpp.
#include "driver/hip/hip_api.hpp"

#include <algorithm>

#include "driver/hip/on_device.hpp"

namespace tensormem::hip {

namespace {

constexpr int kCopyDefault = 4;  // the addresses say which way

}  // namespace

std::unique_ptr<gpu::GpuApi> open_api(const std::string& path, bool count, std::string* why) {
  FunctionTable functions;
  if (!load_functions(path, count, &functions, why)) return nullptr;
  int devices = 0;
  Result result = functions.hipInit(0);
  const char* call = "hipInit";
  if (result == cuda::kSuccess) {
    result = functions.hipGetDeviceCount(&devices);
    call = "hipGetDeviceCount";
  }
  if (result == cuda::kNoDevice || (result == cuda::kSuccess && devices == 0)) {
    *why = "the HIP runtime is there, but it finds no device";
    return nullptr;
  }
  if (result != cuda::kSuccess) {
    const char* const name = functions.hipGetErrorName(result);
    *why = std::string(call) + " failed: " + (name != nullptr ? name : "unknown") + " (" + std::to_string(result) + ")";
    return nullptr;
  }
  (void)functions.hipDriverGetVersion(&functions.driver_version);
  return std::make_unique<HipApi>(functions, std::min(devices, HipApi::kMaxDevices));
}

const char* HipApi::error_name(std::int32_t code) const noexcept { return f_.hipGetErrorName(code); }

const char* HipApi::error_text(std::int32_t code) const noexcept { return f_.hipGetErrorString(code); }

Status HipApi::device_info(std::int32_t device, DeviceInfo* info) {
  DeviceInfo found;
  std::size_t total = 0;
  TM_TRY(answer(f_.hipDeviceGetName(found.name, sizeof found.name, device), "hipDeviceGetName"));
  TM_TRY(answer(f_.hipDeviceTotalMem(&total, device), "hipDeviceTotalMem"));
  using gpu::DeviceAttribute;
  const auto says = [&](DeviceAttribute fact) { return gpu::has(*this, device, fact); };
  found.total_bytes = total;
  found.simulated = f_.simulated;
  found.managed_memory = says(DeviceAttribute::managed_memory) && f_.hipMallocManaged != nullptr;
  found.virtual_memory = says(DeviceAttribute::virtual_memory) && f_.hipMemCreate != nullptr;
  found.memory_pools = says(DeviceAttribute::memory_pools) && f_.hipMallocFromPoolAsync != nullptr;
  // HIP has no fact for it: what can map memory can export it, where the runtime has the function.
  found.posix_handles = found.virtual_memory && f_.hipMemExportToShareableHandle != nullptr;
  found.concurrent_managed_access = found.managed_memory && says(DeviceAttribute::concurrent_managed_access);
  found.integrated = says(DeviceAttribute::integrated);
  found.host_native_atomics = says(DeviceAttribute::host_native_atomics);
  found.pageable_memory_access = says(DeviceAttribute::pageable_memory_access);
  *info = found;
  return {};
}

bool HipApi::attribute(std::int32_t device, gpu::DeviceAttribute attribute, std::int32_t* value) noexcept {
  const std::int32_t number = gpu::numbers_of(attribute).hip;
  int answered = 0;
  if (number < 0 || f_.hipDeviceGetAttribute(&answered, number, device) != cuda::kSuccess) return false;
  *value = answered;
  return true;
}

Status HipApi::memory_info(std::int32_t device, MemoryInfo* info) {
  std::size_t free = 0;
  std::size_t total = 0;
  TM_TRY(on_device(device, "hipMemGetInfo", [&] { return f_.hipMemGetInfo(&free, &total); }));
  *info = {free, total};
  return {};
}

// --- Streams and events ------------------------------------------------------------------------------------------

Status HipApi::stream_create(std::int32_t device, gpu::NativeStream* stream) {
  // Not tied to the null stream: order is what is asked for, never what happens to be.
  return on_device(device, "hipStreamCreateWithFlags",
                   [&] { return f_.hipStreamCreateWithFlags(stream, cuda::kStreamNonBlocking); });
}

Status HipApi::stream_destroy(gpu::StreamRef stream) {
  return on_device(stream.device, "hipStreamDestroy", [&] { return f_.hipStreamDestroy(stream.handle); });
}

Status HipApi::stream_synchronize(gpu::StreamRef stream) {
  return beside_captures(stream.device, "hipStreamSynchronize", [&] { return f_.hipStreamSynchronize(stream.handle); });
}

Status HipApi::stream_query(gpu::StreamRef stream, bool* done) {
  Result result = cuda::kSuccess;
  TM_TRY(beside_captures(stream.device, "hipStreamQuery", [&] {
    result = f_.hipStreamQuery(stream.handle);
    return result == cuda::kNotReady ? Result{cuda::kSuccess} : result;
  }));
  *done = result == cuda::kSuccess;
  return {};
}

Status HipApi::stream_is_capturing(gpu::StreamRef stream, bool* capturing) {
  int state = 0;
  *capturing = false;
  if (f_.hipStreamIsCapturing == nullptr) return {};
  // Only an answer about captures is one; what else is wrong is told by the call that follows.
  constexpr Result kFirst = 900;
  constexpr Result kLast = 908;
  Status asked =
      on_device(stream.device, "hipStreamIsCapturing", [&] { return f_.hipStreamIsCapturing(stream.handle, &state); });
  if (!asked.ok()) {
    const Result code = asked.failure().driver_code;
    return code >= kFirst && code <= kLast ? std::move(asked) : Status();
  }
  *capturing = state != 0;
  return {};
}

Status HipApi::stream_serial(gpu::StreamRef, std::uint64_t* serial) {
  *serial = 0;
  return {};
}

Status HipApi::device_synchronize(std::int32_t device) {
  return on_device(device, "hipDeviceSynchronize", [&] { return f_.hipDeviceSynchronize(); });
}

Status HipApi::stream_device(std::int32_t guess, gpu::NativeStream stream, std::int32_t* device) {
  if (f_.hipStreamGetDevice == nullptr) return missing("hipStreamGetDevice");
  return on_device(guess, "hipStreamGetDevice", [&] { return f_.hipStreamGetDevice(stream, device); });
}

Status HipApi::event_create(std::int32_t device, bool timed, gpu::NativeEvent* event) {
  return on_device(device, "hipEventCreateWithFlags",
                   [&] { return f_.hipEventCreateWithFlags(event, timed ? 0 : cuda::kEventDisableTiming); });
}

Status HipApi::event_destroy(gpu::EventRef event) {
  return on_device(event.device, "hipEventDestroy", [&] { return f_.hipEventDestroy(event.handle); });
}

Status HipApi::event_record(gpu::EventRef event, gpu::StreamRef stream) {
  return on_device(stream.device, "hipEventRecord", [&] { return f_.hipEventRecord(event.handle, stream.handle); });
}

Status HipApi::event_query(gpu::EventRef event, bool* done) {
  Result result = cuda::kSuccess;
  TM_TRY(beside_captures(event.device, "hipEventQuery", [&] {
    result = f_.hipEventQuery(event.handle);
    return result == cuda::kNotReady ? Result{cuda::kSuccess} : result;
  }));
  *done = result == cuda::kSuccess;
  return {};
}

Status HipApi::event_synchronize(gpu::EventRef event) {
  return beside_captures(event.device, "hipEventSynchronize", [&] { return f_.hipEventSynchronize(event.handle); });
}

Status HipApi::event_elapsed(gpu::EventRef start, gpu::EventRef end, double* seconds) {
  float milliseconds = 0;
  TM_TRY(on_device(start.device, "hipEventElapsedTime",
                   [&] { return f_.hipEventElapsedTime(&milliseconds, start.handle, end.handle); }));
  *seconds = static_cast<double>(milliseconds) * 1e-3;
  return {};
}

Status HipApi::stream_wait_event(gpu::StreamRef stream, gpu::EventRef event) {
  return on_device(stream.device, "hipStreamWaitEvent",
                   [&] { return f_.hipStreamWaitEvent(stream.handle, event.handle, 0); });
}

// --- Work --------------------------------------------------------------------------------------------------------

Status HipApi::place_of(std::int32_t asker, std::uint64_t address, std::int32_t* device) {
  *device = kHostPlace;
  if (f_.hipPointerGetAttribute == nullptr) return {};
  return on_device(asker, "hipPointerGetAttribute", [&] {
    int memory_type = 0;
    // What the runtime does not know is pageable memory.
    if (f_.hipPointerGetAttribute(&memory_type, cuda::kPointerMemoryType, pointer(address)) != cuda::kSuccess)
      return Result{cuda::kSuccess};
    if (memory_type != device_memory_type()) return Result{cuda::kSuccess};
    return f_.hipPointerGetAttribute(device, cuda::kPointerDeviceOrdinal, pointer(address));
  });
}

// The numbers of hipMemoryType became CUDA's with release 6.
int HipApi::device_memory_type() const noexcept {
  constexpr int kFirstWithCudaNumbers = 60000000;
  return f_.driver_version >= kFirstWithCudaNumbers ? cuda::kMemoryDevice : 1;
}

bool HipApi::can_reach(std::int32_t worker, std::int32_t owner) noexcept {
  int can = 0;
  if (f_.hipDeviceCanAccessPeer == nullptr || f_.hipDeviceEnablePeerAccess == nullptr) return false;
  return f_.hipDeviceCanAccessPeer(&can, worker, owner) == cuda::kSuccess && can != 0;
}

Status HipApi::peer_enable(std::int32_t worker, std::int32_t owner) {
  return beside_captures(worker, "hipDeviceEnablePeerAccess", [&] {
    const Result result = f_.hipDeviceEnablePeerAccess(owner, 0);
    return result == cuda::kPeerAlreadyEnabled ? Result{cuda::kSuccess} : result;
  });
}

Status HipApi::copy_line_between(const Pitched& to, const Pitched& from, std::uint64_t nbytes, gpu::StreamRef stream) {
  return on_device(stream.device, "hipMemcpyPeerAsync", [&] {
    return f_.hipMemcpyPeerAsync(pointer(to.address), to.device, pointer(from.address), from.device, nbytes,
                                 stream.handle);
  });
}

// Row by row: the call for boxes between two devices is younger than the releases that are served.
Status HipApi::copy_box_between(const Pitched& to, const Pitched& from, const CopyShape& shape, gpu::StreamRef stream) {
  for (std::uint64_t plane = 0; plane < shape.depth; ++plane) {
    for (std::uint64_t row = 0; row < shape.height; ++row) {
      Pitched left = to;
      Pitched right = from;
      left.address += plane * to.plane_pitch + row * to.row_pitch;
      right.address += plane * from.plane_pitch + row * from.row_pitch;
      TM_TRY(copy_line_between(left, right, shape.width, stream));
    }
  }
  return {};
}

Status HipApi::copy_line(std::uint64_t to, std::uint64_t from, std::uint64_t nbytes, gpu::StreamRef stream) {
  return on_device(stream.device, "hipMemcpyAsync",
                   [&] { return f_.hipMemcpyAsync(pointer(to), pointer(from), nbytes, kCopyDefault, stream.handle); });
}

// Plane by plane: the call for boxes takes a structure that differs between releases of HIP.
Status HipApi::copy_box(const Pitched& to, const Pitched& from, const CopyShape& shape, gpu::StreamRef stream) {
  for (std::uint64_t plane = 0; plane < shape.depth; ++plane) {
    TM_TRY(on_device(stream.device, "hipMemcpy2DAsync", [&] {
      return f_.hipMemcpy2DAsync(pointer(to.address + plane * to.plane_pitch), to.row_pitch,
                                 pointer(from.address + plane * from.plane_pitch), from.row_pitch, shape.width,
                                 shape.height, kCopyDefault, stream.handle);
    }));
  }
  return {};
}

// Rows of bytes are one call; rows of wider elements are one call each.
Status HipApi::fill(const gpu::FillRows& rows, gpu::StreamRef stream) {
  if (rows.element_bytes == 1 && rows.height > 1) {
    return on_device(stream.device, "hipMemset2DAsync", [&] {
      return f_.hipMemset2DAsync(pointer(rows.address), rows.row_pitch, static_cast<int>(rows.value), rows.count,
                                 rows.height, stream.handle);
    });
  }
  for (std::uint64_t row = 0; row < rows.height; ++row) {
    void* const to = pointer(rows.address + row * rows.row_pitch);
    switch (rows.element_bytes) {
      case 1:
        TM_TRY(on_device(stream.device, "hipMemsetD8Async", [&] {
          return f_.hipMemsetD8Async(to, static_cast<unsigned char>(rows.value), rows.count, stream.handle);
        }));
        break;
      case 2:
        TM_TRY(on_device(stream.device, "hipMemsetD16Async", [&] {
          return f_.hipMemsetD16Async(to, static_cast<unsigned short>(rows.value), rows.count, stream.handle);
        }));
        break;
      default:
        TM_TRY(on_device(stream.device, "hipMemsetD32Async", [&] {
          return f_.hipMemsetD32Async(to, static_cast<int>(rows.value), rows.count, stream.handle);
        }));
    }
  }
  return {};
}

// The first element is set by halves, and what there is is copied behind itself until it is all there.
Status HipApi::fill_wide(std::uint64_t address, std::uint64_t value, std::uint64_t count, gpu::StreamRef stream) {
  TM_TRY(fill({address, 4, static_cast<std::uint32_t>(value), 4, 1, 1}, stream));
  TM_TRY(fill({address + 4, 4, static_cast<std::uint32_t>(value >> 32), 4, 1, 1}, stream));
  for (std::uint64_t done = 1; done < count; done *= 2) {
    const std::uint64_t more = std::min(done, count - done);
    TM_TRY(copy_line(address + done * 8, address, more * 8, stream));
  }
  return {};
}

Status HipApi::launch_host(HostFunction function, void* argument, gpu::StreamRef stream) {
  return on_device(stream.device, "hipLaunchHostFunc",
                   [&] { return f_.hipLaunchHostFunc(stream.handle, function, argument); });
}

}  // namespace tensormem::hip

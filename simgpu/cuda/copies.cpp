// CUDA functions that put copies and fills on streams.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

enum class Ends { when_queued, when_done };

// With pageable memory on the far side, and for the functions without a stream, the caller waits.
simgpu::Result run_copy(Machine& machine, Device& current, const host::CopyWork& work, StreamHandle handle, Ends ends,
                        By who) {
  Stream* stream = nullptr;
  HostPoint wait;
  {
    const std::lock_guard lock(machine.mutex);
    SIM_TRY(find_stream(machine, current, handle, &stream));
    SIM_TRY(machine.copy(work, *stream, who, &wait));
  }
  wait.wait();
  return ends == Ends::when_done ? machine.synchronize(*stream) : simgpu::kSuccess;
}

simgpu::Result copy_line(const char* function, std::uint64_t to, std::uint64_t from, std::size_t nbytes,
                         StreamHandle stream, Ends ends, By who = By::worker) {
  return serve_in_context(function, {to, from, nbytes, number(stream)}, [&](Machine& machine, Device& current) {
    if (nbytes == 0) return simgpu::kSuccess;
    const host::CopyWork work{{to, 0, nbytes, nbytes}, {from, 0, nbytes, nbytes}, {nbytes, 1, 1}};
    return run_copy(machine, current, work, stream, ends, who);
  });
}

// The address that one side of a box starts at; 0 when its memory type is none that is simulated.
std::uint64_t start_of(int type, std::uint64_t host_address, DevicePointer device_address) {
  if (type == kMemoryHost) return host_address;
  return type == kMemoryDevice || type == kMemoryUnified ? device_address : 0;
}

Pitched place_of(const Side2D& side) {
  const std::uint64_t start = start_of(side.memory_type, side.host, side.device);
  return {start == 0 ? 0 : start + side.y * side.pitch + side.x_bytes, 0, side.pitch, 0};
}

Pitched place_of(const Side3D& side) {
  const std::uint64_t start = start_of(side.memory_type, side.host, side.device);
  const std::uint64_t plane = side.pitch * side.height;
  return {start == 0 ? 0 : start + side.z * plane + side.y * side.pitch + side.x_bytes, 0, side.pitch, plane};
}

simgpu::Result copy_box(const char* function, const Pitched& to, const Pitched& from, const CopyShape& shape,
                        StreamHandle stream, Ends ends, By who = By::worker) {
  return serve_in_context(function, {to.address, from.address, shape.width, shape.height, shape.depth, number(stream)},
                          [&](Machine& machine, Device& current) {
                            if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return simgpu::kSuccess;
                            return run_copy(machine, current, {to, from, shape}, stream, ends, who);
                          });
}

simgpu::Result copy_2d(const char* function, const Copy2D* copy, StreamHandle stream, Ends ends) {
  if (copy == nullptr) return copy_box(function, {}, {}, {1, 1, 1}, stream, ends);
  return copy_box(function, place_of(copy->destination), place_of(copy->source), {copy->width_bytes, copy->height, 1},
                  stream, ends);
}

simgpu::Result copy_3d(const char* function, const Copy3D* copy, StreamHandle stream, Ends ends, By who = By::worker) {
  if (copy == nullptr) return copy_box(function, {}, {}, {1, 1, 1}, stream, ends);
  return copy_box(function, place_of(copy->destination), place_of(copy->source),
                  {copy->width_bytes, copy->height, copy->depth}, stream, ends, who);
}

struct Fill {
  DevicePointer to;
  std::size_t pitch;
  std::uint64_t value;
  std::uint32_t element;
  std::size_t width;
  std::size_t height;
};

simgpu::Result fill(const char* function, const Fill& fill, StreamHandle handle, Ends ends) {
  return serve_in_context(
      function, {fill.to, fill.pitch, fill.value, fill.width, fill.height, number(handle)},
      [&](Machine& machine, Device& current) {
        if (fill.width == 0 || fill.height == 0) return simgpu::kSuccess;
        if (fill.to % fill.element != 0 || fill.width > 1ULL << 46) return simgpu::kInvalidValue;
        const std::uint64_t width = fill.width * fill.element;
        if (fill.height > 1 && (fill.pitch < width || fill.pitch % fill.element != 0)) return simgpu::kInvalidValue;
        Stream* stream = nullptr;
        {
          const std::lock_guard lock(machine.mutex);
          SIM_TRY(find_stream(machine, current, handle, &stream));
          SIM_TRY(
              machine.fill({{fill.to, 0, fill.pitch, 0}, {width, fill.height, 1}, fill.value, fill.element}, *stream));
        }
        return ends == Ends::when_done ? machine.synchronize(*stream) : simgpu::kSuccess;
      });
}

Fill line(DevicePointer to, std::uint64_t value, std::uint32_t element, std::size_t count) {
  return {to, count * element, value, element, count, 1};
}

// The contexts of a peer copy must be alive; which device copies is the driver's affair.
simgpu::Result check_peers(ContextHandle to, ContextHandle from) {
  return serve("cuMemcpyPeer contexts", {number(to), number(from)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = nullptr;
    SIM_TRY(find_context(machine, to, &device));
    return find_context(machine, from, &device);
  });
}

}  // namespace

extern "C" {

Result cuMemcpy(DevicePointer to, DevicePointer from, std::size_t nbytes) {
  return copy_line("cuMemcpy", to, from, nbytes, nullptr, Ends::when_done);
}

Result cuMemcpyHtoD_v2(DevicePointer to, const void* from, std::size_t nbytes) {
  return copy_line("cuMemcpyHtoD", to, number(from), nbytes, nullptr, Ends::when_done);
}

Result cuMemcpyDtoH_v2(void* to, DevicePointer from, std::size_t nbytes) {
  return copy_line("cuMemcpyDtoH", number(to), from, nbytes, nullptr, Ends::when_done);
}

Result cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, std::size_t nbytes) {
  return copy_line("cuMemcpyDtoD", to, from, nbytes, nullptr, Ends::when_done);
}

Result cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t nbytes, StreamHandle stream) {
  return copy_line("cuMemcpyAsync", to, from, nbytes, stream, Ends::when_queued);
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t nbytes, StreamHandle stream) {
  return copy_line("cuMemcpyHtoDAsync", to, number(from), nbytes, stream, Ends::when_queued);
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t nbytes, StreamHandle stream) {
  return copy_line("cuMemcpyDtoHAsync", number(to), from, nbytes, stream, Ends::when_queued);
}

Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t nbytes, StreamHandle stream) {
  return copy_line("cuMemcpyDtoDAsync", to, from, nbytes, stream, Ends::when_queued);
}

Result cuMemcpyPeer(DevicePointer to, ContextHandle to_context, DevicePointer from, ContextHandle from_context,
                    std::size_t nbytes) {
  SIM_TRY(check_peers(to_context, from_context));
  return copy_line("cuMemcpyPeer", to, from, nbytes, nullptr, Ends::when_done, By::owner);
}

Result cuMemcpyPeerAsync(DevicePointer to, ContextHandle to_context, DevicePointer from, ContextHandle from_context,
                         std::size_t nbytes, StreamHandle stream) {
  SIM_TRY(check_peers(to_context, from_context));
  return copy_line("cuMemcpyPeerAsync", to, from, nbytes, stream, Ends::when_queued, By::owner);
}

// Each copy has its own place in the stream here; a real driver may overlap them. The legacy stream takes no batches.
Result cuMemcpyBatchAsync_v2(const DevicePointer* to, const DevicePointer* from, const std::size_t* nbytes,
                             std::size_t count, const void* attributes, const std::size_t* from_copy,
                             std::size_t attribute_count, StreamHandle stream) {
  const bool given = to != nullptr && from != nullptr && nbytes != nullptr && attributes != nullptr &&
                     from_copy != nullptr && count != 0 && attribute_count != 0 && attribute_count <= count &&
                     from_copy[0] == 0 && number(stream) > kLegacyStream;
  if (!given) return serve("cuMemcpyBatchAsync", {count}, [](Machine&) { return simgpu::kInvalidValue; });
  for (std::size_t i = 0; i < count; ++i) {
    SIM_TRY(copy_line("cuMemcpyBatchAsync", to[i], from[i], nbytes[i], stream, Ends::when_queued));
  }
  return simgpu::kSuccess;
}

Result cuMemcpy2D_v2(const Copy2D* copy) { return copy_2d("cuMemcpy2D", copy, nullptr, Ends::when_done); }

Result cuMemcpy2DAsync_v2(const Copy2D* copy, StreamHandle stream) {
  return copy_2d("cuMemcpy2DAsync", copy, stream, Ends::when_queued);
}

Result cuMemcpy3D_v2(const Copy3D* copy) { return copy_3d("cuMemcpy3D", copy, nullptr, Ends::when_done); }

Result cuMemcpy3DAsync_v2(const Copy3D* copy, StreamHandle stream) {
  return copy_3d("cuMemcpy3DAsync", copy, stream, Ends::when_queued);
}

Result cuMemcpy3DPeerAsync(const Copy3D* copy, StreamHandle stream) {
  if (copy != nullptr) SIM_TRY(check_peers(copy->destination.context, copy->source.context));
  return copy_3d("cuMemcpy3DPeerAsync", copy, stream, Ends::when_queued, By::owner);
}

Result cuMemsetD8_v2(DevicePointer to, unsigned char value, std::size_t count) {
  return fill("cuMemsetD8", line(to, value, 1, count), nullptr, Ends::when_done);
}

Result cuMemsetD16_v2(DevicePointer to, unsigned short value, std::size_t count) {
  return fill("cuMemsetD16", line(to, value, 2, count), nullptr, Ends::when_done);
}

Result cuMemsetD32_v2(DevicePointer to, unsigned value, std::size_t count) {
  return fill("cuMemsetD32", line(to, value, 4, count), nullptr, Ends::when_done);
}

Result cuMemsetD8Async(DevicePointer to, unsigned char value, std::size_t count, StreamHandle stream) {
  return fill("cuMemsetD8Async", line(to, value, 1, count), stream, Ends::when_queued);
}

Result cuMemsetD16Async(DevicePointer to, unsigned short value, std::size_t count, StreamHandle stream) {
  return fill("cuMemsetD16Async", line(to, value, 2, count), stream, Ends::when_queued);
}

Result cuMemsetD32Async(DevicePointer to, unsigned value, std::size_t count, StreamHandle stream) {
  return fill("cuMemsetD32Async", line(to, value, 4, count), stream, Ends::when_queued);
}

Result cuMemsetD2D8Async(DevicePointer to, std::size_t pitch, unsigned char value, std::size_t width,
                         std::size_t height, StreamHandle stream) {
  return fill("cuMemsetD2D8Async", {to, pitch, value, 1, width, height}, stream, Ends::when_queued);
}

Result cuMemsetD2D16Async(DevicePointer to, std::size_t pitch, unsigned short value, std::size_t width,
                          std::size_t height, StreamHandle stream) {
  return fill("cuMemsetD2D16Async", {to, pitch, value, 2, width, height}, stream, Ends::when_queued);
}

Result cuMemsetD2D32Async(DevicePointer to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
                          StreamHandle stream) {
  return fill("cuMemsetD2D32Async", {to, pitch, value, 4, width, height}, stream, Ends::when_queued);
}

}  // extern "C"

}  // namespace tensormem::cuda

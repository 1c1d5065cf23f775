// HIP functions about plain, pinned and managed memory, copies and fills.
#include "hip/serve.hpp"

using namespace simgpu;
using namespace simgpu::hip;
using tensormem::CopyShape;
using tensormem::Pitched;

namespace {

enum class Ends { when_queued, when_done };

int copy_box(const char* function, const tensormem::host::CopyWork& work, int kind, void* handle, Ends ends,
             By who = By::worker) {
  const CopyShape& shape = work.shape;
  return serve(function, {work.destination.address, work.source.address, shape.width, shape.height, number(handle)},
               [&](Machine& machine) {
                 constexpr int kKinds = 4;
                 if (kind < 0 || kind > kKinds) return kInvalidValue;
                 if (shape.width == 0 || shape.height == 0) return kSuccess;
                 Stream* stream = nullptr;
                 HostPoint wait;
                 {
                   const std::lock_guard lock(machine.mutex);
                   SIM_TRY(find_stream(machine, handle, &stream));
                   if (stream->device->broken != kSuccess) return stream->device->broken;
                   SIM_TRY(machine.copy(work, *stream, who, &wait));
                 }
                 wait.wait();
                 return ends == Ends::when_done ? machine.synchronize(*stream) : kSuccess;
               });
}

int copy_line(const char* function, void* to, const void* from, std::size_t nbytes, int kind, void* stream, Ends ends,
              By who = By::worker) {
  return copy_box(function, {{number(to), 0, nbytes, nbytes}, {number(from), 0, nbytes, nbytes}, {nbytes, 1, 1}}, kind,
                  stream, ends, who);
}

struct Fill {
  void* to;
  std::size_t pitch;
  std::uint64_t value;
  std::uint32_t element;
  std::size_t width;
  std::size_t height;
};

int fill_box(const char* function, const Fill& fill, void* handle, Ends ends) {
  return serve(
      function, {number(fill.to), fill.pitch, fill.value, fill.width, fill.height, number(handle)},
      [&](Machine& machine) {
        if (fill.width == 0 || fill.height == 0) return kSuccess;
        if (number(fill.to) % fill.element != 0 || fill.width > 1ULL << 46) return kInvalidValue;
        const std::uint64_t width = fill.width * fill.element;
        Stream* stream = nullptr;
        {
          const std::lock_guard lock(machine.mutex);
          SIM_TRY(find_stream(machine, handle, &stream));
          if (stream->device->broken != kSuccess) return stream->device->broken;
          SIM_TRY(machine.fill({{number(fill.to), 0, fill.pitch, 0}, {width, fill.height, 1}, fill.value, fill.element},
                               *stream));
        }
        return ends == Ends::when_done ? machine.synchronize(*stream) : kSuccess;
      });
}

// Managed memory must be known where a function is about it.
Result find_managed(Machine& machine, std::uint64_t address, std::size_t nbytes, int device) {
  const Range* const range = machine.memory.find(address);
  if (device != -1 && machine.device(device) == nullptr) return kInvalidDevice;
  const bool fits = range != nullptr && range->kind == Kind::managed && nbytes != 0 &&
                    nbytes <= range->size - (address - range->start);
  return fits ? kSuccess : kInvalidValue;
}

Result free_memory(Machine& machine, void* address, Kind kind) {
  {
    const std::lock_guard lock(machine.mutex);
    Device* device = nullptr;
    SIM_TRY(find_device(machine, &device));
  }
  return address == nullptr ? kSuccess : machine.deallocate(number(address), kind);
}

}  // namespace

extern "C" {

int hipMemGetInfo(std::size_t* free, std::size_t* total) {
  return serve_on_device("hipMemGetInfo", {}, [&](Machine&, Device& device) {
    if (free == nullptr || total == nullptr) return kInvalidValue;
    *free = device.total - device.used;
    *total = device.total;
    return kSuccess;
  });
}

int hipMalloc(void** address, std::size_t nbytes) {
  return serve_on_device("hipMalloc", {nbytes}, [&](Machine& machine, Device& device) {
    std::uint64_t got = 0;
    if (address == nullptr) return kInvalidValue;
    if (nbytes != 0) SIM_TRY(machine.allocate(device, nbytes, &got));
    *address = reinterpret_cast<void*>(got);
    return kSuccess;
  });
}

int hipFree(void* address) {
  return serve("hipFree", {number(address)},
               [&](Machine& machine) { return free_memory(machine, address, Kind::device); });
}

int hipHostMalloc(void** address, std::size_t nbytes, unsigned flags) {
  return serve_on_device("hipHostMalloc", {nbytes, flags}, [&](Machine& machine, Device& device) {
    std::uint64_t got = 0;
    if (address == nullptr || nbytes == 0) return kInvalidValue;
    SIM_TRY(machine.allocate_host(&device, nbytes, Kind::host, &got));
    *address = reinterpret_cast<void*>(got);
    return kSuccess;
  });
}

int hipHostFree(void* address) {
  return serve("hipHostFree", {number(address)},
               [&](Machine& machine) { return free_memory(machine, address, Kind::host); });
}

int hipHostRegister(void* address, std::size_t nbytes, unsigned flags) {
  return serve_on_device("hipHostRegister", {number(address), nbytes, flags},
                         [&](Machine& machine, Device&) { return machine.register_host(number(address), nbytes); });
}

int hipHostUnregister(void* address) {
  return serve("hipHostUnregister", {number(address)}, [&](Machine& machine) {
    {
      const std::lock_guard lock(machine.mutex);
      Device* device = nullptr;
      SIM_TRY(find_device(machine, &device));
    }
    return machine.unregister_host(number(address));
  });
}

int hipMallocManaged(void** address, std::size_t nbytes, unsigned flags) {
  return serve_on_device("hipMallocManaged", {nbytes, flags}, [&](Machine& machine, Device& device) {
    std::uint64_t got = 0;
    if (address == nullptr || nbytes == 0 || flags < 1 || flags > 2) return kInvalidValue;
    if (!machine.config.managed) return kNotSupported;
    SIM_TRY(machine.allocate_host(&device, nbytes, Kind::managed, &got));
    *address = reinterpret_cast<void*>(got);
    return kSuccess;
  });
}

int hipMemAdvise(const void* address, std::size_t nbytes, int advice, int device) {
  return serve_on_device("hipMemAdvise", {number(address), nbytes}, [&](Machine& machine, Device&) {
    return machine.advise(number(address), nbytes, advice, device);
  });
}

int hipMemPrefetchAsync(const void* address, std::size_t nbytes, int device, void* handle) {
  return serve_on_stream("hipMemPrefetchAsync", handle, [&](Machine& machine, Stream& stream) {
    SIM_TRY(find_managed(machine, number(address), nbytes, device));
    return machine.touch(number(address), nbytes, true, stream);
  });
}

// What is not known is not the runtime's: pageable memory of the host.
int hipPointerGetAttribute(void* data, int attribute, void* address) {
  return serve("hipPointerGetAttribute", {static_cast<std::uint64_t>(attribute), number(address)},
               [&](Machine& machine) {
                 const std::lock_guard lock(machine.mutex);
                 const Range* const range = machine.memory.find(number(address));
                 if (data == nullptr || range == nullptr) return kInvalidValue;
                 const bool managed = range->kind == Kind::managed;
                 const bool far = !managed && !range->is_host();
                 int answer = 0;
                 if (attribute == tensormem::cuda::kPointerMemoryType) {
                   answer = managed ? 3 : far ? tensormem::cuda::kMemoryDevice : tensormem::cuda::kMemoryHost;
                 } else if (attribute == tensormem::cuda::kPointerDeviceOrdinal) {
                   answer = range->device == nullptr ? 0 : range->device->ordinal;
                 } else {
                   return kInvalidValue;
                 }
                 *static_cast<int*>(data) = answer;
                 return kSuccess;
               });
}

// --- Copies and fills --------------------------------------------------------------------------------------------

int hipMemcpy(void* to, const void* from, std::size_t nbytes, int kind) {
  return copy_line("hipMemcpy", to, from, nbytes, kind, nullptr, Ends::when_done);
}

int hipMemcpyAsync(void* to, const void* from, std::size_t nbytes, int kind, void* stream) {
  return copy_line("hipMemcpyAsync", to, from, nbytes, kind, stream, Ends::when_queued);
}

int hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t nbytes, void* stream) {
  const bool known = to_device >= 0 && from_device >= 0;
  return copy_line("hipMemcpyPeerAsync", to, from, nbytes, known ? 3 : -1, stream, Ends::when_queued, By::owner);
}

int hipMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                     std::size_t height, int kind, void* stream) {
  return copy_box("hipMemcpy2DAsync",
                  {{number(to), 0, to_pitch, 0}, {number(from), 0, from_pitch, 0}, {width, height, 1}}, kind, stream,
                  Ends::when_queued);
}

int hipMemset(void* to, int value, std::size_t nbytes) {
  return fill_box("hipMemset", {to, nbytes, static_cast<unsigned char>(value), 1, nbytes, 1}, nullptr, Ends::when_done);
}

int hipMemsetAsync(void* to, int value, std::size_t nbytes, void* stream) {
  return fill_box("hipMemsetAsync", {to, nbytes, static_cast<unsigned char>(value), 1, nbytes, 1}, stream,
                  Ends::when_queued);
}

int hipMemsetD8Async(void* to, unsigned char value, std::size_t count, void* stream) {
  return fill_box("hipMemsetD8Async", {to, count, value, 1, count, 1}, stream, Ends::when_queued);
}

int hipMemsetD16Async(void* to, unsigned short value, std::size_t count, void* stream) {
  return fill_box("hipMemsetD16Async", {to, 2 * count, value, 2, count, 1}, stream, Ends::when_queued);
}

int hipMemsetD32Async(void* to, int value, std::size_t count, void* stream) {
  return fill_box("hipMemsetD32Async", {to, 4 * count, static_cast<unsigned>(value), 4, count, 1}, stream,
                  Ends::when_queued);
}

int hipMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, void* stream) {
  return fill_box("hipMemset2DAsync", {to, pitch, static_cast<unsigned char>(value), 1, width, height}, stream,
                  Ends::when_queued);
}

}  // extern "C"

// CUDA functions about streams, events and host functions.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

simgpu::Result with_stream(const char* function, StreamHandle handle, auto body) {
  return serve_in_context(function, {number(handle)}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    Stream* stream = nullptr;
    SIM_TRY(find_stream(machine, device, handle, &stream));
    if (stream->device->broken != simgpu::kSuccess) return stream->device->broken;
    return body(machine, *stream);
  });
}

simgpu::Result with_event(const char* function, EventPointer handle, auto body) {
  return serve(function, {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(handle, &event));
    if (event->device->broken != simgpu::kSuccess) return event->device->broken;
    return body(machine, *event);
  });
}

simgpu::Result create_stream(const char* function, StreamHandle* stream, unsigned flags, int priority) {
  return serve_in_context(function, {flags, static_cast<std::uint64_t>(priority)},
                          [&](Machine& machine, Device& device) {
                            const std::lock_guard lock(machine.mutex);
                            if (stream == nullptr || flags > 1) return simgpu::kInvalidValue;
                            Stream* made = nullptr;
                            SIM_TRY(machine.streams.create(device, flags, priority, true, &made));
                            const CurrentContext& current = context_stack().back();
                            made->own_context = current.handle == &device ? nullptr : current.handle;
                            *stream = made;
                            return simgpu::kSuccess;
                          });
}

}  // namespace

extern "C" {

Result cuStreamCreate(StreamHandle* stream, unsigned flags) {
  return create_stream("cuStreamCreate", stream, flags, 0);
}

Result cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority) {
  return create_stream("cuStreamCreateWithPriority", stream, flags, std::min(0, std::max(priority, -5)));
}

Result cuStreamDestroy_v2(StreamHandle handle) {
  return serve("cuStreamDestroy", {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Stream* stream = nullptr;
    SIM_TRY(machine.streams.find(handle, &stream));
    if (!stream->is_own) return kInvalidHandle;
    machine.streams.destroy(*stream);
    return simgpu::kSuccess;
  });
}

Result cuStreamSynchronize(StreamHandle handle) {
  return serve_in_context("cuStreamSynchronize", {number(handle)}, [&](Machine& machine, Device& device) {
    Stream* stream = nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      SIM_TRY(find_stream(machine, device, handle, &stream));
      SIM_TRY(machine.captures.check_wait(*stream));
    }
    return machine.synchronize(*stream);
  });
}

Result cuStreamQuery(StreamHandle handle) {
  return with_stream("cuStreamQuery", handle, [&](Machine& machine, Stream& stream) {
    SIM_TRY(machine.captures.check_wait(stream));
    if (!machine.streams.end_of(stream).has_passed()) return simgpu::kNotReady;
    Clock clock = stream.clock;
    clock.raise(stream.now());
    machine.streams.host_saw(clock);
    return simgpu::kSuccess;
  });
}

Result cuStreamGetFlags(StreamHandle handle, unsigned* flags) {
  return with_stream("cuStreamGetFlags", handle, [&](Machine&, Stream& stream) {
    if (flags == nullptr) return simgpu::kInvalidValue;
    *flags = stream.flags;
    return simgpu::kSuccess;
  });
}

Result cuStreamGetPriority(StreamHandle handle, int* priority) {
  return with_stream("cuStreamGetPriority", handle, [&](Machine&, Stream& stream) {
    if (priority == nullptr) return simgpu::kInvalidValue;
    *priority = stream.priority;
    return simgpu::kSuccess;
  });
}

Result cuStreamGetCtx(StreamHandle handle, ContextHandle* context) {
  return with_stream("cuStreamGetCtx", handle, [&](Machine&, Stream& stream) {
    if (context == nullptr) return simgpu::kInvalidValue;
    *context = stream.own_context == nullptr ? static_cast<void*>(stream.device) : stream.own_context;
    return simgpu::kSuccess;
  });
}

Result cuStreamGetCtx_v2(StreamHandle handle, ContextHandle* context, void** green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, context);
}

Result cuStreamGetDevice(StreamHandle handle, DeviceNumber* device) {
  return with_stream("cuStreamGetDevice", handle, [&](Machine&, Stream& stream) {
    if (device == nullptr) return simgpu::kInvalidValue;
    *device = stream.device->ordinal;
    return simgpu::kSuccess;
  });
}

Result cuStreamGetId(StreamHandle handle, std::uint64_t* id) {
  return with_stream("cuStreamGetId", handle, [&](Machine&, Stream& stream) {
    if (id == nullptr) return simgpu::kInvalidValue;
    *id = stream.serial;
    return simgpu::kSuccess;
  });
}

Result cuStreamWaitEvent(StreamHandle handle, EventPointer event_handle, unsigned flags) {
  return with_stream("cuStreamWaitEvent", handle, [&](Machine& machine, Stream& stream) {
    Event* event = nullptr;
    if (flags > 1) return simgpu::kInvalidValue;
    SIM_TRY(machine.streams.find_event(event_handle, &event));
    return machine.streams.wait(stream, *event);
  });
}

Result cuLaunchHostFunc(StreamHandle handle, HostCallback function, void* argument) {
  return with_stream("cuLaunchHostFunc", handle,
                     [&](Machine& machine, Stream& stream) { return machine.call_back(function, argument, stream); });
}

// --- Events ------------------------------------------------------------------------------------------------------

Result cuEventCreate(EventPointer* event, unsigned flags) {
  return serve_in_context("cuEventCreate", {flags}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    constexpr unsigned kWithoutTimes = 2;
    constexpr unsigned kInterprocess = 4;
    if (event == nullptr || flags > 7) return simgpu::kInvalidValue;
    if ((flags & (kInterprocess | kWithoutTimes)) == kInterprocess) return simgpu::kInvalidValue;
    Event* made = nullptr;
    SIM_TRY(machine.streams.create_event(device, flags, &made));
    *event = made;
    return simgpu::kSuccess;
  });
}

Result cuEventDestroy_v2(EventPointer handle) {
  return serve("cuEventDestroy", {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(handle, &event));
    return machine.streams.destroy_event(*event);
  });
}

Result cuEventRecord(EventPointer event_handle, StreamHandle handle) {
  return with_stream("cuEventRecord", handle, [&](Machine& machine, Stream& stream) {
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(event_handle, &event));
    return machine.streams.record(*event, stream);
  });
}

Result cuEventRecordWithFlags(EventPointer event, StreamHandle stream, unsigned flags) {
  return flags > 1 ? cuEventRecord(nullptr, stream) : cuEventRecord(event, stream);
}

Result cuEventQuery(EventPointer handle) {
  return with_event("cuEventQuery", handle, [&](Machine& machine, Event& event) {
    SIM_TRY(machine.captures.check_wait(event));
    if (!machine.streams.has_passed(event)) return simgpu::kNotReady;
    machine.streams.host_saw(event.clock);
    return simgpu::kSuccess;
  });
}

Result cuEventSynchronize(EventPointer handle) {
  return serve("cuEventSynchronize", {number(handle)}, [&](Machine& machine) {
    Event* event = nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      SIM_TRY(machine.streams.find_event(handle, &event));
      SIM_TRY(machine.captures.check_wait(*event));
    }
    return machine.synchronize(*event);
  });
}

Result cuEventElapsedTime(float* milliseconds, EventPointer start, EventPointer end) {
  return with_event("cuEventElapsedTime", start, [&](Machine& machine, Event& first) {
    Event* second = nullptr;
    if (milliseconds == nullptr) return simgpu::kInvalidValue;
    SIM_TRY(machine.streams.find_event(end, &second));
    SIM_TRY(machine.captures.check_wait(first));
    SIM_TRY(machine.captures.check_wait(*second));
    return machine.streams.elapsed(first, *second, milliseconds);
  });
}

Result cuEventElapsedTime_v2(float* milliseconds, EventPointer start, EventPointer end) {
  return cuEventElapsedTime(milliseconds, start, end);
}

}  // extern "C"

}  // namespace tensormem::cuda

// HIP functions about the driver, its devices, streams and events.
#include <cstdio>

#include "core/profiles.hpp"
#include "hip/serve.hpp"

using namespace simgpu;
using namespace simgpu::hip;

const char* const simgpu::kDefaultProfile = "mi300";
const char* const simgpu::kVendor = "rocm";

namespace simgpu::hip {

namespace {

struct Current {
  std::uint64_t machine = 0;
  int ordinal = 0;
};

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {0, "hipSuccess", "no error"},
    {1, "hipErrorInvalidValue", "an argument is out of range"},
    {2, "hipErrorOutOfMemory", "there is not enough memory"},
    {3, "hipErrorNotInitialized", "the driver is not initialised"},
    {4, "hipErrorDeinitialized", "the driver is shutting down"},
    {100, "hipErrorNoDevice", "there is no device"},
    {101, "hipErrorInvalidDevice", "there is no device of this number"},
    {201, "hipErrorInvalidContext", "no context, or one that is not valid"},
    {217, "hipErrorPeerAccessUnsupported", "these devices cannot reach one another's memory"},
    {304, "hipErrorOperatingSystem", "a system call failed"},
    {400, "hipErrorInvalidHandle", "a handle is not valid"},
    {500, "hipErrorNotFound", "there is no such symbol"},
    {600, "hipErrorNotReady", "the work is not done yet"},
    {700, "hipErrorIllegalAddress", "work touched memory that it must not"},
    {704, "hipErrorPeerAccessAlreadyEnabled", "peer access is enabled already"},
    {705, "hipErrorPeerAccessNotEnabled", "peer access is not enabled"},
    {709, "hipErrorContextIsDestroyed", "the context was destroyed"},
    {712, "hipErrorHostMemoryAlreadyRegistered", "the memory is registered already"},
    {713, "hipErrorHostMemoryNotRegistered", "the memory is not registered"},
    {719, "hipErrorLaunchFailure", "work on the device failed"},
    {801, "hipErrorNotSupported", "not supported"},
    {900, "hipErrorStreamCaptureUnsupported", "the call is not permitted while a stream is being captured"},
    {901, "hipErrorStreamCaptureInvalidated", "an earlier call made the capture invalid"},
    {902, "hipErrorStreamCaptureMerge", "two captures would become one"},
    {903, "hipErrorStreamCaptureUnmatched", "the capture did not begin on this stream"},
    {904, "hipErrorStreamCaptureUnjoined", "work of another stream was not joined to the capture"},
    {905, "hipErrorStreamCaptureIsolation", "captured work would wait for work outside of the capture"},
    {906, "hipErrorStreamCaptureImplicit", "the legacy stream would wait for captured work"},
    {907, "hipErrorCapturedEvent", "the event was last recorded in a capture"},
    {908, "hipErrorStreamCaptureWrongThread", "the capture began on another thread"},
    {999, "hipErrorUnknown", "an unknown failure"},
};

const ErrorText& find_error(int code) {
  for (const ErrorText& each : kErrors) {
    if (each.code == code) return each;
  }
  return kErrors[std::size(kErrors) - 1];
}

int with_device(const char* function, int ordinal, auto body) {
  return serve(function, {static_cast<std::uint64_t>(ordinal)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* const device = machine.device(ordinal);
    return device == nullptr ? kInvalidDevice : body(machine, *device);
  });
}

int with_event(const char* function, void* handle, auto body) {
  return serve(function, {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(handle, &event));
    if (event->device->broken != kSuccess) return event->device->broken;
    return body(machine, *event);
  });
}

int attribute_of(const Machine& machine, int attribute) {
  constexpr int kConcurrentManaged = 9;
  constexpr int kIntegrated = 16;
  constexpr int kManaged = 24;
  constexpr int kUnifiedAddresses = 85;
  constexpr int kPools = 88;
  constexpr int kVirtualMemory = 89;
  if (attribute == kUnifiedAddresses) return 1;
  if (attribute == kManaged) return machine.config.managed ? 1 : 0;
  if (attribute == kConcurrentManaged) return machine.config.managed && machine.config.concurrent_managed ? 1 : 0;
  if (attribute == kIntegrated) return machine.config.integrated ? 1 : 0;
  if (attribute == kPools) return machine.config.pools ? 1 : 0;
  return attribute == kVirtualMemory && machine.config.virtual_memory ? 1 : 0;
}

}  // namespace

int& current_ordinal() {
  thread_local Current current;
  if (current.machine != machine_number()) current = {machine_number(), 0};
  return current.ordinal;
}

Result find_device(Machine& machine, Device** device) {
  *device = machine.device(current_ordinal());
  return (*device)->broken;
}

Result find_stream(Machine& machine, void* handle, Stream** stream) {
  Device& current = *machine.device(current_ordinal());
  if (number(handle) <= tensormem::cuda::kLegacyStream) {
    *stream = &machine.streams.legacy(current);
    return kSuccess;
  }
  if (number(handle) == tensormem::cuda::kPerThreadStream) {
    *stream = &machine.streams.of_this_thread(current);
    return kSuccess;
  }
  return machine.streams.find(handle, stream);
}

}  // namespace simgpu::hip

extern "C" {

int hipInit(unsigned flags) {
  return serve("hipInit", {flags}, [&](Machine&) { return flags == 0 ? kSuccess : kInvalidValue; });
}

int hipDriverGetVersion(int* version) {
  return serve("hipDriverGetVersion", {}, [&](Machine& machine) {
    if (version == nullptr) return kInvalidValue;
    *version = machine.config.version;
    return kSuccess;
  });
}

int hipRuntimeGetVersion(int* version) { return hipDriverGetVersion(version); }

const char* hipGetErrorName(int error) { return find_error(error).name; }

const char* hipGetErrorString(int error) { return find_error(error).text; }

int hipGetLastError(void) { return kSuccess; }

int hipGetDeviceCount(int* count) {
  return serve("hipGetDeviceCount", {}, [&](Machine& machine) {
    if (count == nullptr) return kInvalidValue;
    *count = static_cast<int>(machine.devices.size());
    return kSuccess;
  });
}

int hipGetDevice(int* device) {
  return serve("hipGetDevice", {}, [&](Machine&) {
    if (device == nullptr) return kInvalidValue;
    *device = current_ordinal();
    return kSuccess;
  });
}

int hipSetDevice(int ordinal) {
  return with_device("hipSetDevice", ordinal, [&](Machine&, Device&) {
    current_ordinal() = ordinal;
    return kSuccess;
  });
}

int hipDeviceGet(int* device, int ordinal) {
  return with_device("hipDeviceGet", ordinal, [&](Machine&, Device&) {
    if (device == nullptr) return kInvalidValue;
    *device = ordinal;
    return kSuccess;
  });
}

int hipDeviceGetName(char* name, int length, int ordinal) {
  return with_device("hipDeviceGetName", ordinal, [&](Machine&, Device& device) {
    if (name == nullptr || length <= 0) return kInvalidValue;
    std::snprintf(name, static_cast<std::size_t>(length), "tensormem simulated GPU %d", device.ordinal);
    return kSuccess;
  });
}

int hipDeviceTotalMem(std::size_t* bytes, int ordinal) {
  return with_device("hipDeviceTotalMem", ordinal, [&](Machine&, Device& device) {
    if (bytes == nullptr) return kInvalidValue;
    *bytes = device.total;
    return kSuccess;
  });
}

int hipDeviceGetAttribute(int* value, int attribute, int ordinal) {
  return with_device("hipDeviceGetAttribute", ordinal, [&](Machine& machine, Device&) {
    if (value == nullptr || attribute < 0) return kInvalidValue;
    *value = attribute_of(machine, attribute);
    return kSuccess;
  });
}

int hipDeviceCanAccessPeer(int* can, int ordinal, int peer) {
  return with_device("hipDeviceCanAccessPeer", ordinal, [&](Machine& machine, Device&) {
    if (machine.device(peer) == nullptr) return kInvalidDevice;
    if (can == nullptr) return kInvalidValue;
    *can = machine.config.peer && peer != ordinal ? 1 : 0;
    return kSuccess;
  });
}

int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return serve_on_device("hipDeviceEnablePeerAccess", {static_cast<std::uint64_t>(peer), flags},
                         [&](Machine& machine, Device& device) {
                           const Device* const other = machine.device(peer);
                           if (other == nullptr || other == &device) return kInvalidDevice;
                           if (flags != 0) return kInvalidValue;
                           if (!machine.config.peer) return kPeerAccessUnsupported;
                           if ((device.peers & 1U << peer) != 0) return kPeerAccessAlreadyEnabled;
                           device.peers |= 1U << peer;
                           return kSuccess;
                         });
}

int hipDeviceDisablePeerAccess(int peer) {
  return serve_on_device("hipDeviceDisablePeerAccess", {static_cast<std::uint64_t>(peer)},
                         [&](Machine& machine, Device& device) {
                           if (machine.device(peer) == nullptr) return kInvalidDevice;
                           if ((device.peers & 1U << peer) == 0) return kPeerAccessNotEnabled;
                           device.peers &= ~(1U << peer);
                           return kSuccess;
                         });
}

int hipDeviceSynchronize(void) {
  return serve("hipDeviceSynchronize", {}, [&](Machine& machine) {
    Device* device = nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      SIM_TRY(find_device(machine, &device));
      SIM_TRY(machine.captures.check_wait(*device));
    }
    return machine.synchronize(*device);
  });
}

int hipDeviceReset(void) {
  return serve("hipDeviceReset", {}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    machine.destroy_context(*machine.device(current_ordinal()));
    return kSuccess;
  });
}

// --- Streams -----------------------------------------------------------------------------------------------------

int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  return serve_on_device("hipStreamCreateWithFlags", {flags}, [&](Machine& machine, Device& device) {
    if (stream == nullptr || flags > 1) return kInvalidValue;
    Stream* made = nullptr;
    SIM_TRY(machine.streams.create(device, flags, 0, true, &made));
    *stream = made;
    return kSuccess;
  });
}

int hipStreamCreate(void** stream) { return hipStreamCreateWithFlags(stream, 0); }

int hipStreamDestroy(void* handle) {
  return serve("hipStreamDestroy", {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Stream* stream = nullptr;
    SIM_TRY(machine.streams.find(handle, &stream));
    if (!stream->is_own) return kInvalidHandle;
    machine.streams.destroy(*stream);
    return kSuccess;
  });
}

int hipStreamSynchronize(void* handle) {
  return serve("hipStreamSynchronize", {number(handle)}, [&](Machine& machine) {
    Stream* stream = nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      SIM_TRY(find_stream(machine, handle, &stream));
      if (stream->device->broken != kSuccess) return stream->device->broken;
      SIM_TRY(machine.captures.check_wait(*stream));
    }
    return machine.synchronize(*stream);
  });
}

int hipStreamQuery(void* handle) {
  return serve_on_stream("hipStreamQuery", handle, [&](Machine& machine, Stream& stream) {
    SIM_TRY(machine.captures.check_wait(stream));
    if (!machine.streams.end_of(stream).has_passed()) return kNotReady;
    Clock clock = stream.clock;
    clock.raise(stream.now());
    machine.streams.host_saw(clock);
    return kSuccess;
  });
}

int hipStreamGetDevice(void* handle, int* device) {
  return serve_on_stream("hipStreamGetDevice", handle, [&](Machine&, Stream& stream) {
    if (device == nullptr) return kInvalidValue;
    *device = stream.device->ordinal;
    return kSuccess;
  });
}

int hipStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
  return serve_on_stream("hipStreamWaitEvent", handle, [&](Machine& machine, Stream& stream) {
    Event* event = nullptr;
    if (flags != 0) return kInvalidValue;
    SIM_TRY(machine.streams.find_event(event_handle, &event));
    return machine.streams.wait(stream, *event);
  });
}

int hipLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  return serve_on_stream("hipLaunchHostFunc", handle, [&](Machine& machine, Stream& stream) {
    return machine.call_back(function, argument, stream);
  });
}

// --- Events ------------------------------------------------------------------------------------------------------

int hipEventCreateWithFlags(void** event, unsigned flags) {
  return serve_on_device("hipEventCreateWithFlags", {flags}, [&](Machine& machine, Device& device) {
    if (event == nullptr) return kInvalidValue;
    Event* made = nullptr;
    SIM_TRY(machine.streams.create_event(device, flags, &made));
    *event = made;
    return kSuccess;
  });
}

int hipEventCreate(void** event) { return hipEventCreateWithFlags(event, 0); }

int hipEventDestroy(void* handle) {
  return serve("hipEventDestroy", {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(handle, &event));
    return machine.streams.destroy_event(*event);
  });
}

int hipEventRecord(void* event_handle, void* handle) {
  return serve_on_stream("hipEventRecord", handle, [&](Machine& machine, Stream& stream) {
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(event_handle, &event));
    return machine.streams.record(*event, stream);
  });
}

int hipEventQuery(void* handle) {
  return with_event("hipEventQuery", handle, [&](Machine& machine, Event& event) {
    SIM_TRY(machine.captures.check_wait(event));
    if (!machine.streams.has_passed(event)) return kNotReady;
    machine.streams.host_saw(event.clock);
    return kSuccess;
  });
}

int hipEventSynchronize(void* handle) {
  return serve("hipEventSynchronize", {number(handle)}, [&](Machine& machine) {
    Event* event = nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      SIM_TRY(machine.streams.find_event(handle, &event));
      SIM_TRY(machine.captures.check_wait(*event));
    }
    return machine.synchronize(*event);
  });
}

int hipEventElapsedTime(float* milliseconds, void* start, void* end) {
  return with_event("hipEventElapsedTime", start, [&](Machine& machine, Event& first) {
    Event* second = nullptr;
    if (milliseconds == nullptr) return kInvalidValue;
    SIM_TRY(machine.streams.find_event(end, &second));
    return machine.streams.elapsed(first, *second, milliseconds);
  });
}

}  // extern "C"

// CUDA functions about the driver, its devices and their primary contexts.
#include <cstdio>
#include <cstring>

#include "core/profiles.hpp"
#include "cuda/serve.hpp"

using namespace simgpu;        // the simulator's own words
using namespace simgpu::cuda;  // the door

const char* const simgpu::kDefaultProfile = "h100";
const char* const simgpu::kVendor = "cuda";

namespace tensormem::cuda {

namespace {

Result with_device(const char* function, DeviceNumber ordinal, auto body) {
  return serve(function, {static_cast<std::uint64_t>(ordinal)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* const device = machine.device(ordinal);
    return device == nullptr ? kInvalidDevice : body(machine, *device);
  });
}

struct Attribute {
  int number;
  int value;
};

// What a simulated device says of itself; everything else is 0.
constexpr Attribute kAttributes[] = {
    {1, 1024},         // threads per block
    {2, 1024},         // block x
    {3, 1024},         // block y
    {4, 64},           // block z
    {5, 2147483647},   // grid x
    {6, 65535},        // grid y
    {7, 65535},        // grid z
    {8, 49152},        // shared memory per block
    {9, 65536},        // constant memory
    {10, 32},          // warp
    {11, 2147483647},  // pitch
    {12, 65536},       // registers per block
    {13, 1000000},     // kHz
    {14, 512},         // texture alignment
    {16, 1},           // multiprocessors
    {19, 1},           // can map host memory
    {36, 1000000},     // memory kHz
    {37, 64},          // bus width
    {39, 1024},        // threads per multiprocessor
    {40, 2},           // copy engines
    {41, 1},           // unified addresses
    {78, 1},           // stream priorities
    {91, 1},           // registered memory at its own address
    {99, 1},           // host memory can be registered
};

int attribute_of(const Machine& machine, const Device& device, int attribute) {
  switch (attribute) {
    case 33:  // PCI bus
      return device.ordinal + 1;
    case 18:
      return machine.config.integrated ? 1 : 0;
    case 75:  // compute capability: of no real device's timing, only of its interface
      return machine.config.capability / 10;
    case 76:
      return machine.config.capability % 10;
    case 83:
      return machine.config.managed ? 1 : 0;
    case 89:  // managed memory, also together with the CPU
      return machine.config.managed && machine.config.concurrent_managed ? 1 : 0;
    case 103:  // memory exported by file descriptor
      return machine.config.virtual_memory && machine.config.posix_handles ? 1 : 0;
    case 119:  // pools exported by file descriptor
      return machine.config.pools && machine.config.posix_handles ? 1 : 0;
    case 102:
      return machine.config.virtual_memory ? 1 : 0;
    case 115:
      return machine.config.pools ? 1 : 0;
    case 131:  // NUMA nodes: of device memory none, of the host the first
      return -1;
    default:
      for (const Attribute& each : kAttributes) {
        if (each.number == attribute) return each.value;
      }
      return 0;
  }
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  return serve_any("cuInit", {flags}, false, [&](Machine& machine) {
    if (flags != 0) return simgpu::kInvalidValue;
    if (machine.devices.empty()) return simgpu::kNoDevice;
    set_initialized();
    return simgpu::kSuccess;
  });
}

Result cuDriverGetVersion(int* version) {
  return serve_any("cuDriverGetVersion", {}, false, [&](Machine& machine) {
    if (version == nullptr) return simgpu::kInvalidValue;
    *version = machine.config.version;
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetCount(int* count) {
  return serve("cuDeviceGetCount", {}, [&](Machine& machine) {
    if (count == nullptr) return simgpu::kInvalidValue;
    *count = static_cast<int>(machine.devices.size());
    return simgpu::kSuccess;
  });
}

Result cuDeviceGet(DeviceNumber* device, int ordinal) {
  return with_device("cuDeviceGet", ordinal, [&](Machine&, Device&) {
    if (device == nullptr) return simgpu::kInvalidValue;
    *device = ordinal;
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetName(char* name, int length, DeviceNumber ordinal) {
  return with_device("cuDeviceGetName", ordinal, [&](Machine&, Device& device) {
    if (name == nullptr || length <= 0) return simgpu::kInvalidValue;
    std::snprintf(name, static_cast<std::size_t>(length), "tensormem simulated GPU %d", device.ordinal);
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetUuid_v2(void* uuid, DeviceNumber ordinal) {
  return with_device("cuDeviceGetUuid", ordinal, [&](Machine&, Device& device) {
    if (uuid == nullptr) return simgpu::kInvalidValue;
    char bytes[17];
    std::snprintf(bytes, sizeof bytes, "tm-simulated-%03d", device.ordinal);
    std::memcpy(uuid, bytes, 16);
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetUuid(void* uuid, DeviceNumber ordinal) { return cuDeviceGetUuid_v2(uuid, ordinal); }

Result cuDeviceTotalMem_v2(std::size_t* bytes, DeviceNumber ordinal) {
  return with_device("cuDeviceTotalMem", ordinal, [&](Machine&, Device& device) {
    if (bytes == nullptr) return simgpu::kInvalidValue;
    *bytes = device.total;
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetAttribute(int* value, int attribute, DeviceNumber ordinal) {
  return with_device("cuDeviceGetAttribute", ordinal, [&](Machine& machine, Device& device) {
    if (value == nullptr || attribute <= 0) return simgpu::kInvalidValue;
    *value = attribute_of(machine, device, attribute);
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetPCIBusId(char* text, int length, DeviceNumber ordinal) {
  return with_device("cuDeviceGetPCIBusId", ordinal, [&](Machine&, Device& device) {
    if (text == nullptr || length <= 0) return simgpu::kInvalidValue;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device.ordinal + 1);
    return simgpu::kSuccess;
  });
}

Result cuDeviceCanAccessPeer(int* can, DeviceNumber ordinal, DeviceNumber peer) {
  return with_device("cuDeviceCanAccessPeer", ordinal, [&](Machine& machine, Device& device) {
    const Device* const other = machine.device(peer);
    if (can == nullptr) return simgpu::kInvalidValue;
    if (other == nullptr) return kInvalidDevice;
    *can = machine.config.peer && other != &device ? 1 : 0;
    return simgpu::kSuccess;
  });
}

Result cuDeviceGetP2PAttribute(int* value, int attribute, DeviceNumber ordinal, DeviceNumber peer) {
  return with_device("cuDeviceGetP2PAttribute", ordinal, [&](Machine& machine, Device&) {
    constexpr int kAccessSupported = 2;
    if (machine.device(peer) == nullptr) return kInvalidDevice;
    if (value == nullptr || peer == ordinal) return simgpu::kInvalidValue;
    *value = attribute == kAccessSupported && machine.config.peer ? 1 : 0;
    return simgpu::kSuccess;
  });
}

// --- Primary contexts --------------------------------------------------------------------------------------------

Result cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceNumber ordinal) {
  return with_device("cuDevicePrimaryCtxRetain", ordinal, [&](Machine&, Device& device) {
    if (context == nullptr) return simgpu::kInvalidValue;
    device.retained += 1;
    *context = &device;
    return simgpu::kSuccess;
  });
}

Result cuDevicePrimaryCtxRelease_v2(DeviceNumber ordinal) {
  return with_device("cuDevicePrimaryCtxRelease", ordinal, [&](Machine& machine, Device& device) {
    if (device.retained == 0) return kInvalidContext;
    if (--device.retained == 0) machine.destroy_context(device);
    return simgpu::kSuccess;
  });
}

Result cuDevicePrimaryCtxReset_v2(DeviceNumber ordinal) {
  return with_device("cuDevicePrimaryCtxReset", ordinal, [&](Machine& machine, Device& device) {
    machine.destroy_context(device);
    return simgpu::kSuccess;
  });
}

Result cuDevicePrimaryCtxSetFlags_v2(DeviceNumber ordinal, unsigned flags) {
  return with_device("cuDevicePrimaryCtxSetFlags", ordinal, [&](Machine&, Device& device) {
    device.context_flags = flags;
    return simgpu::kSuccess;
  });
}

Result cuDevicePrimaryCtxGetState(DeviceNumber ordinal, unsigned* flags, int* active) {
  return with_device("cuDevicePrimaryCtxGetState", ordinal, [&](Machine&, Device& device) {
    if (flags == nullptr || active == nullptr) return simgpu::kInvalidValue;
    *flags = device.context_flags;
    *active = device.retained != 0 ? 1 : 0;
    return simgpu::kSuccess;
  });
}

// A context of the application's own: it is current from here on. Streams know it; memory is the device's.
Result cuCtxCreate_v2(ContextHandle* context, unsigned, DeviceNumber ordinal) {
  return with_device("cuCtxCreate", ordinal, [&](Machine&, Device& device) {
    if (context == nullptr) return simgpu::kInvalidValue;
    device.own_contexts.push_back({&device});
    *context = &device.own_contexts.back();
    context_stack().push_back({&device, *context});
    return simgpu::kSuccess;
  });
}

Result cuCtxCreate_v4(ContextHandle* context, void*, unsigned flags, DeviceNumber ordinal) {
  return cuCtxCreate_v2(context, flags, ordinal);
}

Result cuCtxDestroy_v2(ContextHandle context) {
  return serve("cuCtxDestroy", {number(context)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = nullptr;
    SIM_TRY(find_context(machine, context, &device));
    if (context == device) return kInvalidContext;  // the primary one is released, not destroyed
    machine.streams.destroy_all(static_cast<const void*>(context));
    device->own_contexts.remove_if([&](const OwnContext& own) { return &own == context; });
    auto& stack = context_stack();
    if (!stack.empty() && stack.back().handle == context) stack.pop_back();
    return simgpu::kSuccess;
  });
}

Result cuCtxPushCurrent_v2(ContextHandle context) {
  return serve("cuCtxPushCurrent", {number(context)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = nullptr;
    SIM_TRY(find_context(machine, context, &device));
    context_stack().push_back({device, context});
    return simgpu::kSuccess;
  });
}

Result cuCtxPopCurrent_v2(ContextHandle* context) {
  return serve("cuCtxPopCurrent", {}, [&](Machine&) {
    if (context_stack().empty()) return kInvalidContext;
    if (context != nullptr) *context = context_stack().back().handle;
    context_stack().pop_back();
    return simgpu::kSuccess;
  });
}

Result cuCtxSetCurrent(ContextHandle context) {
  return serve("cuCtxSetCurrent", {number(context)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = nullptr;
    if (context != nullptr) SIM_TRY(find_context(machine, context, &device));
    if (!context_stack().empty()) context_stack().pop_back();
    if (device != nullptr) context_stack().push_back({device, context});
    return simgpu::kSuccess;
  });
}

Result cuCtxGetCurrent(ContextHandle* context) {
  return serve("cuCtxGetCurrent", {}, [&](Machine& machine) {
    if (context == nullptr) return simgpu::kInvalidValue;
    *context = current_device(machine) == nullptr ? nullptr : context_stack().back().handle;
    return simgpu::kSuccess;
  });
}

Result cuCtxGetDevice(DeviceNumber* ordinal) {
  return serve_in_context("cuCtxGetDevice", {}, [&](Machine&, Device& device) {
    if (ordinal == nullptr) return simgpu::kInvalidValue;
    *ordinal = device.ordinal;
    return simgpu::kSuccess;
  });
}

Result cuCtxGetDevice_v2(DeviceNumber* ordinal, ContextHandle context) {
  return serve("cuCtxGetDevice", {number(context)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = context == nullptr ? current_device(machine) : nullptr;
    if (ordinal == nullptr) return simgpu::kInvalidValue;
    if (device == nullptr) SIM_TRY(find_context(machine, context, &device));
    *ordinal = device->ordinal;
    return simgpu::kSuccess;
  });
}

Result cuCtxGetFlags(unsigned* flags) {
  return serve_in_context("cuCtxGetFlags", {}, [&](Machine&, Device& device) {
    if (flags == nullptr) return simgpu::kInvalidValue;
    *flags = device.context_flags;
    return simgpu::kSuccess;
  });
}

Result cuCtxGetId(ContextHandle context, std::uint64_t* id) {
  return serve("cuCtxGetId", {number(context)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = context == nullptr ? current_device(machine) : nullptr;
    if (id == nullptr) return simgpu::kInvalidValue;
    if (device == nullptr) SIM_TRY(find_context(machine, context, &device));
    *id = machine_number() << 8 | static_cast<unsigned>(device->ordinal + 1);
    return simgpu::kSuccess;
  });
}

Result cuCtxGetApiVersion(ContextHandle context, unsigned* version) {
  return serve("cuCtxGetApiVersion", {number(context)}, [&](Machine& machine) {
    if (version == nullptr) return simgpu::kInvalidValue;
    *version = static_cast<unsigned>(machine.config.version);
    return simgpu::kSuccess;
  });
}

Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return serve_in_context("cuCtxGetStreamPriorityRange", {}, [&](Machine&, Device&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return simgpu::kSuccess;
  });
}

Result cuCtxSynchronize() {
  return serve_in_context("cuCtxSynchronize", {}, [&](Machine& machine, Device& device) {
    {
      const std::lock_guard lock(machine.mutex);
      SIM_TRY(machine.captures.check_wait(device));
    }
    return machine.synchronize(device);
  });
}

Result cuCtxSynchronize_v2(ContextHandle context) {
  return serve("cuCtxSynchronize", {number(context)}, [&](Machine& machine) {
    Device* device = context == nullptr ? current_device(machine) : nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      if (device == nullptr) SIM_TRY(find_context(machine, context, &device));
      SIM_TRY(machine.captures.check_wait(*device));
    }
    return machine.synchronize(*device);
  });
}

Result cuCtxEnablePeerAccess(ContextHandle peer, unsigned flags) {
  return serve_in_context("cuCtxEnablePeerAccess", {number(peer), flags}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    Device* other = nullptr;
    SIM_TRY(find_context(machine, peer, &other));
    if (flags != 0 || other == &device) return simgpu::kInvalidValue;
    if (!machine.config.peer) return kPeerAccessUnsupported;
    const std::uint32_t bit = 1U << other->ordinal;
    if ((device.peers & bit) != 0) return kPeerAccessAlreadyEnabled;
    device.peers |= bit;
    return simgpu::kSuccess;
  });
}

Result cuCtxDisablePeerAccess(ContextHandle peer) {
  return serve_in_context("cuCtxDisablePeerAccess", {number(peer)}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    Device* other = nullptr;
    SIM_TRY(find_context(machine, peer, &other));
    const std::uint32_t bit = 1U << other->ordinal;
    if ((device.peers & bit) == 0) return kPeerAccessNotEnabled;
    device.peers &= ~bit;
    return simgpu::kSuccess;
  });
}

}  // extern "C"

}  // namespace tensormem::cuda

// HIP functions about memory of others.
#include <algorithm>
#include <iterator>

#include "hip/serve.hpp"

using namespace simgpu;
using namespace simgpu::hip;
using tensormem::cuda::ExternalBuffer;
using tensormem::cuda::ExternalDescription;

namespace {

bool is_zero(const std::uint32_t (&reserved)[16]) {
  return std::all_of(std::begin(reserved), std::end(reserved), [](std::uint32_t each) { return each == 0; });
}

// The only type there is for descriptors.
bool is_fd(const ExternalDescription* description) {
  return description != nullptr && description->type == tensormem::cuda::kExternalOpaqueFd &&
         (description->flags & ~tensormem::cuda::kExternalDedicated) == 0 && is_zero(description->reserved);
}

}  // namespace

extern "C" {

int hipImportExternalMemory(void** external, const ExternalDescription* description) {
  return serve_on_device("hipImportExternalMemory", {}, [&](Machine& machine, Device& device) {
    if (external == nullptr || !is_fd(description)) return kInvalidValue;
    return machine.externals.import(device, description->fd, description->size, external);
  });
}

int hipExternalMemoryGetMappedBuffer(void** address, void* external, const ExternalBuffer* buffer) {
  return serve_on_device("hipExternalMemoryGetMappedBuffer", {number(external)}, [&](Machine& machine, Device&) {
    const bool fits = address != nullptr && buffer != nullptr && buffer->flags == 0 && is_zero(buffer->reserved);
    if (!fits) return kInvalidValue;
    std::uint64_t got = 0;
    SIM_TRY(machine.externals.map(external, buffer->offset, buffer->size, &got));
    *address = reinterpret_cast<void*>(got);
    return kSuccess;
  });
}

int hipDestroyExternalMemory(void* external) {
  return serve_on_device("hipDestroyExternalMemory", {number(external)},
                         [&](Machine& machine, Device&) { return machine.externals.destroy(external); });
}

}  // extern "C"

// CUDA functions about memory of others.
#include <algorithm>
#include <iterator>

#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

constexpr int kKnowsDmaBufs = 13000;

bool is_zero(const std::uint32_t (&reserved)[16]) {
  return std::all_of(std::begin(reserved), std::end(reserved), [](std::uint32_t each) { return each == 0; });
}

// DMA-BUFs have no flags; an opaque descriptor may be said to be one allocation of its own.
simgpu::Result check(const Machine& machine, const ExternalDescription* description) {
  if (description == nullptr || !is_zero(description->reserved)) return simgpu::kInvalidValue;
  const std::uint32_t flags = description->flags;
  if (description->type == kExternalOpaqueFd)
    return (flags & ~kExternalDedicated) == 0 ? simgpu::kSuccess : simgpu::kInvalidValue;
  const bool is_dma_buf = description->type == kExternalDmaBufFd && machine.config.version >= kKnowsDmaBufs;
  return is_dma_buf && flags == 0 ? simgpu::kSuccess : simgpu::kInvalidValue;
}

}  // namespace

extern "C" {

Result cuImportExternalMemory(ExternalHandle* external, const ExternalDescription* description) {
  const std::uint64_t type = description == nullptr ? 0 : static_cast<std::uint64_t>(description->type);
  return serve_in_context("cuImportExternalMemory", {type}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    if (external == nullptr) return simgpu::kInvalidValue;
    SIM_TRY(check(machine, description));
    return machine.externals.import(device, description->fd, description->size, external);
  });
}

Result cuExternalMemoryGetMappedBuffer(DevicePointer* address, ExternalHandle external, const ExternalBuffer* buffer) {
  return serve_in_context("cuExternalMemoryGetMappedBuffer", {number(external)}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    const bool fits = address != nullptr && buffer != nullptr && buffer->flags == 0 && is_zero(buffer->reserved);
    if (!fits) return simgpu::kInvalidValue;
    return machine.externals.map(external, buffer->offset, buffer->size, address);
  });
}

Result cuDestroyExternalMemory(ExternalHandle external) {
  return serve_in_context("cuDestroyExternalMemory", {number(external)}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    return machine.externals.destroy(external);
  });
}

}  // extern "C"

}  // namespace tensormem::cuda

// CUDA functions that tell what was said about managed memory.
#include <algorithm>

#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

enum Attribute : int {
  kReadMostly = 1,
  kPreferred,
  kAccessedBy,
  kLastPrefetch,
  kPreferredType,
  kPreferredId,
  kLastPrefetchType,
  kLastPrefetchId,
};

constexpr int kNobody = -2;  // CU_DEVICE_INVALID
constexpr int kInvalidType = 0;

int type_of(int place) {
  if (place == AdviceNote::kNowhere) return kInvalidType;
  return place == -1 ? kLocationHost : kLocationDevice;
}

simgpu::Result tell(const AdviceNote& note, int attribute, void* data, std::size_t bytes) {
  auto* const values = static_cast<std::int32_t*>(data);
  if (data == nullptr || bytes == 0 || bytes % sizeof *values != 0) return simgpu::kInvalidValue;
  if (attribute == kAccessedBy) {
    std::fill_n(values, bytes / sizeof *values, kNobody);
    std::size_t at = 0;
    if (note.accessed_by_host && at < bytes / sizeof *values) values[at++] = -1;
    for (int device = 0; device < 32 && at < bytes / sizeof *values; ++device) {
      if ((note.accessed_by >> device & 1U) != 0) values[at++] = device;
    }
    return simgpu::kSuccess;
  }
  if (bytes != sizeof *values) return simgpu::kInvalidValue;
  switch (attribute) {
    case kReadMostly:
      *values = note.read_mostly ? 1 : 0;
      return simgpu::kSuccess;
    case kPreferred:
      *values = note.preferred;
      return simgpu::kSuccess;
    case kLastPrefetch:
      *values = note.prefetched;
      return simgpu::kSuccess;
    case kPreferredType:
      *values = type_of(note.preferred);
      return simgpu::kSuccess;
    case kLastPrefetchType:
      *values = type_of(note.prefetched);
      return simgpu::kSuccess;
    case kPreferredId:
      *values = std::max(note.preferred, 0);
      return simgpu::kSuccess;
    case kLastPrefetchId:
      *values = std::max(note.prefetched, 0);
      return simgpu::kSuccess;
    default:
      return simgpu::kInvalidValue;
  }
}

}  // namespace

extern "C" {

Result cuMemRangeGetAttributes(void** data, std::size_t* bytes, int* attributes, std::size_t count,
                               DevicePointer address, std::size_t nbytes) {
  return serve_in_context("cuMemRangeGetAttributes", {address, nbytes, count}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    const Range* const range = machine.memory.find(address);
    const bool fits = data != nullptr && bytes != nullptr && attributes != nullptr && count != 0 && range != nullptr &&
                      range->is_managed() && nbytes != 0 && nbytes <= range->size - (address - range->start);
    if (!fits) return simgpu::kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) SIM_TRY(tell(range->advice, attributes[i], data[i], bytes[i]));
    return simgpu::kSuccess;
  });
}

Result cuMemRangeGetAttribute(void* data, std::size_t bytes, int attribute, DevicePointer address, std::size_t nbytes) {
  return cuMemRangeGetAttributes(&data, &bytes, &attribute, 1, address, nbytes);
}

}  // extern "C"

}  // namespace tensormem::cuda

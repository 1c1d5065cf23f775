#include "tensor/dlpack_check.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/align.hpp"

namespace tensormem::dlpack {

namespace {

enum DataTypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kOpaqueHandle = 3,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFirstFloat8 = 7,
  kLastFloat8 = 14,
  kFloat6E2M3FN = 15,
  kFloat6E3M2FN = 16,
  kFloat4E2M1FN = 17,
};

Status refuse(const char* rule, std::int64_t value) { return Status::fail(Code::invalid_dlpack, rule, value); }

bool is_machine_width(std::uint8_t bits) { return bits == 8 || bits == 16 || bits == 32 || bits == 64; }

Status check_type(DataType dtype) {
  if (dtype.code > kFloat4E2M1FN) return refuse("DLPack 1.3 has no such type code", dtype.code);
  if (!is_known(dtype)) return refuse("this type code has no elements of so many bits", dtype.bits);
  if (dtype.lanes == 0) return refuse("an element has at least one lane", dtype.lanes);
  return {};
}

Status check_shape(const Tensor& tensor) {
  if (tensor.ndim < 0) return refuse("ndim is negative", tensor.ndim);
  if (tensor.ndim > kMaxDims) return refuse("ndim is larger than 64", tensor.ndim);
  if (tensor.ndim > 0 && tensor.shape == nullptr) return refuse("shape is NULL", tensor.ndim);
  return {};
}

// What the address of an element must be a multiple of: the size of one lane, of one half of a complex number.
std::uint64_t alignment_of(DataType dtype) {
  const std::uint64_t bits = dtype.code == kComplex ? dtype.bits / 2 : dtype.bits;
  return bits < 8 ? 1 : bits / 8;
}

ElementWidth width_of(DataType dtype, std::uint64_t flags) {
  ElementWidth width;
  width.bits = static_cast<std::uint32_t>(dtype.bits) * dtype.lanes;
  width.packed = width.bits % 8 != 0 && (flags & kSubbytePadded) == 0;
  return width;
}

// DLPack's numbers for main memory, memory pinned by CUDA and by ROCm, and managed memory.
bool is_touched_by_the_cpu(Device device) {
  return device.device_type == 1 || device.device_type == 3 || device.device_type == 11 || device.device_type == 13;
}

// The end of the addresses that a process can have: behind it none is canonical. Where pages have five levels a process
// may ask for addresses up to 2^56; machines that use the topmost byte as a tag are asked nothing.
std::uint64_t user_address_limit() {
#if defined(__x86_64__)
  static const bool has_five_levels = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 16 & 1) != 0;
  }();
  return has_five_levels ? 1ULL << 56 : 1ULL << 47;
#else
  return ~0ULL;
#endif
}

Status check_place(const Tensor& tensor, const Reach& reach, Checked* checked) {
  const auto data = reinterpret_cast<std::uint64_t>(tensor.data);
  std::uint64_t end = 0;
  if (!checked_add(data, tensor.byte_offset, &checked->first)) {
    return refuse("byte_offset reaches beyond the address space", static_cast<std::int64_t>(tensor.byte_offset));
  }
  if (reach.count == 0) {
    checked->lowest = checked->first;
    return {};
  }
  if (tensor.data == nullptr) return refuse("data is NULL where there are elements", 0);
  if (!is_aligned(checked->first, alignment_of(tensor.dtype))) {
    return refuse("data + byte_offset is not aligned to the element type", static_cast<std::int64_t>(checked->first));
  }
  if (reach.below > checked->first) return refuse("negative strides reach below address 0", 0);
  if (!checked_add(checked->first, reach.above, &end)) return refuse("elements reach beyond the address space", 0);
  if (is_touched_by_the_cpu(tensor.device) && end > user_address_limit()) {
    return refuse("the elements lie beyond the addresses that a process can have", static_cast<std::int64_t>(end));
  }
  checked->lowest = checked->first - reach.below;
  checked->nbytes = reach.below + reach.above;
  return {};
}

}  // namespace

bool is_known(DataType dtype) noexcept {
  const std::uint8_t bits = dtype.bits;
  if (dtype.code >= kFirstFloat8 && dtype.code <= kLastFloat8) return bits == 8;
  switch (dtype.code) {
    case kInt:
    case kUInt:
      return is_machine_width(bits) || (bits >= 1 && bits < 8);
    case kFloat:
      return bits == 16 || bits == 32 || bits == 64;
    case kOpaqueHandle:
      return is_machine_width(bits);
    case kBfloat:
      return bits == 16;
    case kComplex:
      return bits == 32 || bits == 64 || bits == 128;
    case kBool:
      return bits == 8;
    case kFloat6E2M3FN:
    case kFloat6E3M2FN:
      return bits == 6;
    case kFloat4E2M1FN:
      return bits == 4;
    default:
      return false;
  }
}

Status check_tensor(const Tensor& tensor, std::uint64_t flags, Checked* checked) noexcept {
  TM_TRY(check_type(tensor.dtype));
  TM_TRY(check_shape(tensor));
  if (tensor.device.device_id < 0) return refuse("device_id is negative", tensor.device.device_id);
  Checked found;
  Reach reach;
  found.width = width_of(tensor.dtype, flags);
  TM_TRY(measure_layout(tensor.ndim, tensor.shape, tensor.strides, found.width, Code::invalid_dlpack, &reach));
  TM_TRY(check_place(tensor, reach, &found));
  *checked = found;
  return {};
}

Status check_managed(const ManagedTensorVersioned& managed, Checked* checked) noexcept {
  if (managed.version.major != kMajor) return refuse("the major version is not 1", managed.version.major);
  return check_tensor(managed.dl_tensor, managed.flags, checked);
}

}  // namespace tensormem::dlpack

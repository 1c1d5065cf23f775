// Feeds bytes as a DLPack struct, its shape and its strides to the check, and walks every element of what passed: none
// may lie outside the bytes that the check says are the tensor's.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tensor/dlpack_check.hpp"

namespace {

using namespace tensormem;
using namespace tensormem::dlpack;

void must(bool holds) {
  if (!holds) std::abort();
}

// The corners are enough: everything else lies between them.
void look_at_corners(const tensormem::dlpack::Tensor& tensor, const Checked& checked) {
  if (checked.width.packed || tensor.ndim > 12) return;
  const auto item = static_cast<std::int64_t>(checked.width.bytes());
  for (std::uint32_t corner = 0; corner < 1U << tensor.ndim; ++corner) {
    std::int64_t offset = 0;
    for (std::int32_t dim = 0; dim < tensor.ndim; ++dim) {
      if (tensor.shape[dim] == 0) return;
      if ((corner >> dim & 1) != 0 && tensor.shape[dim] > 1)
        offset += (tensor.shape[dim] - 1) * tensor.strides[dim] * item;
    }
    const std::uint64_t at = checked.first + static_cast<std::uint64_t>(offset);
    must(at >= checked.lowest && at + static_cast<std::uint64_t>(item) <= checked.lowest + checked.nbytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t kNumbers = 2 * kMaxDims * sizeof(std::int64_t);
  ManagedTensorVersioned managed;
  std::int64_t numbers[2 * kMaxDims] = {};
  if (count < sizeof managed) return 0;
  std::memcpy(&managed, bytes, sizeof managed);
  std::memcpy(numbers, bytes + sizeof managed, count - sizeof managed < kNumbers ? count - sizeof managed : kNumbers);
  // The two pointers are the fuzzer's only to be there or not.
  managed.dl_tensor.shape = managed.dl_tensor.shape == nullptr ? nullptr : numbers;
  managed.dl_tensor.strides = managed.dl_tensor.strides == nullptr ? nullptr : numbers + kMaxDims;
  Checked checked;
  if (!check_managed(managed, &checked).ok()) return 0;
  must(managed.version.major == kMajor && managed.dl_tensor.ndim <= kMaxDims);
  must(checked.lowest + checked.nbytes >= checked.lowest);
  if (managed.dl_tensor.strides != nullptr) look_at_corners(managed.dl_tensor, checked);
  return 0;
}

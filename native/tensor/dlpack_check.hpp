// Owns: whether a DLPack tensor that somebody else made can be believed, before a byte of it is touched.
// Must not know: which devices there are (spaces do), Python. Never calls a deleter: whoever holds the struct does.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "tensor/dlpack.hpp"
#include "tensor/layout.hpp"

namespace tensormem::dlpack {

// What is true of a tensor that passed.
struct Checked {
  std::uint64_t first = 0;   // the address of the first element
  std::uint64_t lowest = 0;  // of the lowest byte; `nbytes` from there on are the tensor's
  std::uint64_t nbytes = 0;
  ElementWidth width;
};

// Whether DLPack 1.3 has such an element type.
bool is_known(DataType dtype) noexcept;

// `flags` are those of the managed tensor; 0 for one from before version 1. Fails with `invalid_dlpack`.
Status check_tensor(const Tensor& tensor, std::uint64_t flags, Checked* checked) noexcept;

// The same, for one from version 1 on: its version first. On a foreign major version nothing but the deleter is known.
Status check_managed(const ManagedTensorVersioned& managed, Checked* checked) noexcept;

}  // namespace tensormem::dlpack

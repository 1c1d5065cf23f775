// Owns: how the elements of one layout get into another of the same shape: the fewest and longest runs, found once.
// Must not know: who copies them. `host_copy.hpp` runs a plan with the CPU; a driver takes the box that it may be.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.hpp"
#include "driver/types.hpp"
#include "tensor/layout.hpp"

namespace tensormem {

// One side of a copy: the address of the first element, and strides in bytes (null: row-major without gaps).
struct StridedPlace {
  std::uint64_t address = 0;
  const std::int64_t* byte_strides = nullptr;
};

// `run` bytes at a time, over up to `ndim` lengths, the outermost first. The destination's strides are positive and
// fall from one dimension to the next, so no two runs of the destination touch.
struct CopyPlan {
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  std::uint64_t run = 0;  // 0: there is nothing to copy
  std::int32_t ndim = 0;
  std::array<std::int64_t, kMaxDims> length;
  std::array<std::int64_t, kMaxDims> to_stride;
  std::array<std::int64_t, kMaxDims> from_stride;

  std::uint64_t nbytes() const noexcept;
  bool is_valid() const noexcept;
};

// Refuses a destination in which two elements share bytes. The layouts must have been measured.
Status plan_copy(std::int32_t ndim, const std::int64_t* shape, std::uint64_t item_bytes, const StridedPlace& to,
                 const StridedPlace& from, CopyPlan* plan) noexcept;

// A box of at most three dimensions, as drivers copy them.
struct CopyBox {
  Pitched to;
  Pitched from;
  CopyShape shape;
};

// The run and those two dimensions that make the largest box pitches can say; the plan's dimensions are reordered so
// that the other `*outer` ones, the first, are left to loop over. False where only an element at a time would do.
bool as_box(CopyPlan& plan, CopyBox* box, std::int32_t* outer) noexcept;

}  // namespace tensormem

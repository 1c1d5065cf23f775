// Owns: what a shape and strides say about bytes: how many elements, how far they reach to both sides of the first one,
// and whether they lie without gaps. Every sum and product is checked.
// Must not know: where the bytes are, DLPack, Python.
#pragma once

#include <cstdint>

#include "base/status.hpp"

namespace tensormem {

// No library has more; it keeps plans of copies on the stack.
inline constexpr std::int32_t kMaxDims = 64;

// Elements as memory sees them. Packed ones are no whole number of bytes wide and share bytes.
struct ElementWidth {
  std::uint32_t bits = 8;
  bool packed = false;
  std::uint64_t bytes() const noexcept { return (bits + 7) / 8; }
};

// From the first element: bytes before it, and bytes from it on. No elements, no bytes.
struct Reach {
  std::uint64_t count = 0;
  std::uint64_t below = 0;
  std::uint64_t above = 0;
};

// `strides` are in elements and may be null (row-major). Refuses negative lengths and what no memory can hold, with
// `code`. Packed elements must be row-major without gaps.
Status measure_layout(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides, ElementWidth width,
                      Code code, Reach* reach) noexcept;

// Row-major without gaps; an empty layout is.
bool is_row_major(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides) noexcept;

// The strides of row-major elements without gaps. The shape must have been measured.
void row_major_strides(std::int32_t ndim, const std::int64_t* shape, std::int64_t* strides) noexcept;

// Strides that show the same elements as a new shape of the same count; false when only a copy could.
bool reshape_strides(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides, std::int32_t new_ndim,
                     const std::int64_t* new_shape, std::int64_t* new_strides) noexcept;

}  // namespace tensormem

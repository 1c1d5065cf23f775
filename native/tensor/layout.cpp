#include "tensor/layout.hpp"

#include <cstdint>

namespace tensormem {

namespace {

constexpr std::int64_t kMost = INT64_MAX;

Status too_large(Code code, std::int64_t value) {
  return Status::fail(code, "the elements reach beyond any memory", value);
}

Status count_elements(std::int32_t ndim, const std::int64_t* shape, Code code, std::int64_t* count) {
  std::int64_t most = 1;  // as if no length were 0: strides of empty layouts must fit as well
  bool empty = false;
  for (std::int32_t i = 0; i < ndim; ++i) {
    if (shape[i] < 0) return Status::fail(code, "a length of the shape is negative", shape[i]);
    if (shape[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(most, shape[i], &most)) {
      return Status::fail(code, "the shape has more elements than any memory", shape[i]);
    }
  }
  *count = empty ? 0 : most;
  return {};
}

// Elements below and above the first one.
Status span(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides, Code code, std::int64_t* below,
            std::int64_t* above) {
  for (std::int32_t i = 0; i < ndim; ++i) {
    std::int64_t reach = 0;
    if (shape[i] == 1) continue;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach)) return too_large(code, strides[i]);
    std::int64_t* side = reach < 0 ? below : above;
    if (__builtin_add_overflow(*side, reach, side)) return too_large(code, strides[i]);
  }
  return {};
}

// The bytes of that many elements.
bool to_bytes(std::uint64_t elements, ElementWidth width, std::uint64_t* bytes) {
  std::uint64_t product = 0;
  if (width.packed) {
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(width.bits), &product)) return false;
    *bytes = product / 8 + (product % 8 != 0);
    return *bytes <= static_cast<std::uint64_t>(kMost);
  }
  if (__builtin_mul_overflow(elements, width.bytes(), bytes)) return false;
  return *bytes <= static_cast<std::uint64_t>(kMost);
}

}  // namespace

Status measure_layout(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides, ElementWidth width,
                      Code code, Reach* reach) noexcept {
  std::int64_t count = 0;
  TM_TRY(count_elements(ndim, shape, code, &count));
  std::int64_t below = 0;
  std::int64_t above = count == 0 ? 0 : count - 1;
  if (strides != nullptr && count != 0) {
    above = 0;
    TM_TRY(span(ndim, shape, strides, code, &below, &above));
    if (width.packed && !is_row_major(ndim, shape, strides)) {
      return Status::fail(code, "packed elements of less than a byte must be row-major without gaps", width.bits);
    }
  }
  Reach found;
  found.count = static_cast<std::uint64_t>(count);
  if (count == 0) {
    *reach = found;
    return {};
  }
  if (below == INT64_MIN || above == kMost || !to_bytes(static_cast<std::uint64_t>(-below), width, &found.below) ||
      !to_bytes(static_cast<std::uint64_t>(above) + 1, width, &found.above)) {
    return too_large(code, count);
  }
  *reach = found;
  return {};
}

bool is_row_major(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides) noexcept {
  std::int64_t expected = 1;
  bool follows = true;
  for (std::int32_t i = ndim - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    if (strides[i] != expected) follows = false;
    expected *= shape[i];
  }
  return follows;
}

void row_major_strides(std::int32_t ndim, const std::int64_t* shape, std::int64_t* strides) noexcept {
  std::int64_t next = 1;
  for (std::int32_t i = ndim - 1; i >= 0; --i) {
    strides[i] = next;
    if (shape[i] > 1) next *= shape[i];
  }
}

bool reshape_strides(std::int32_t ndim, const std::int64_t* shape, const std::int64_t* strides, std::int32_t new_ndim,
                     const std::int64_t* new_shape, std::int64_t* new_strides) noexcept {
  if (is_row_major(ndim, shape, strides)) {
    row_major_strides(new_ndim, new_shape, new_strides);
    return true;
  }
  // Runs of old dimensions that lie without gaps are cut up anew, from the last one on.
  std::int32_t at = new_ndim - 1;
  std::int32_t old = ndim - 1;
  while (old >= 0) {
    if (shape[old] == 1) {
      --old;
      continue;
    }
    std::int64_t run = shape[old];
    const std::int64_t unit = strides[old];
    std::int32_t first = old - 1;
    while (first >= 0 && (shape[first] == 1 || strides[first] == unit * run)) run *= shape[first--];
    std::int64_t cut = 1;
    while (at >= 0 && (cut < run || new_shape[at] == 1)) {
      new_strides[at] = unit * cut;
      cut *= new_shape[at--];
    }
    if (cut != run) return false;
    old = first;
  }
  for (; at >= 0; --at) {
    if (new_shape[at] != 1) return false;
    new_strides[at] = 1;
  }
  return true;
}

}  // namespace tensormem

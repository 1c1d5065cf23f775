#include "driver/host/copy.hpp"

#include <cstring>

#include "base/align.hpp"

namespace tensormem::host {

namespace {

Status check_shape(const CopyShape& shape) {
  if (shape.width == 0) return Status::fail(Code::invalid_size, "the width is zero", shape.width);
  if (shape.height == 0) return Status::fail(Code::invalid_size, "the height is zero", shape.height);
  if (shape.depth == 0) return Status::fail(Code::invalid_size, "the depth is zero", shape.depth);
  std::uint64_t plane = 0;
  std::uint64_t total = 0;
  if (!checked_multiply(shape.width, shape.height, &plane) || !checked_multiply(plane, shape.depth, &total) ||
      total > kNoOverflowLimit) {
    return Status::fail(Code::invalid_size, "the box is larger than any memory", shape.width);
  }
  return {};
}

// `*extent`: bytes from the first to the last one of the box, pitches included.
Status check_place(const Pitched& place, const CopyShape& shape, std::uint64_t* extent) {
  if (place.address == 0) return Status::fail(Code::invalid_argument, "the address is null");
  if (place.device != 0 && place.device != kHostPlace && place.device != kUnknownPlace)
    return Status::fail(Code::invalid_argument, "no such host device");
  std::uint64_t plane = shape.width;
  if (shape.height > 1) {
    if (place.row_pitch < shape.width) {
      return Status::fail(Code::invalid_argument, "the row pitch is smaller than the width");
    }
    if (!checked_multiply(shape.height - 1, place.row_pitch, &plane) || !checked_add(plane, shape.width, &plane)) {
      return Status::fail(Code::invalid_size, "the rows reach beyond any memory", shape.height);
    }
  }
  std::uint64_t box = plane;
  if (shape.depth > 1) {
    if (place.plane_pitch < plane) {
      return Status::fail(Code::invalid_argument, "the plane pitch is smaller than a plane");
    }
    if (!checked_multiply(shape.depth - 1, place.plane_pitch, &box) || !checked_add(box, plane, &box)) {
      return Status::fail(Code::invalid_size, "the planes reach beyond any memory", shape.depth);
    }
  }
  std::uint64_t end = 0;
  if (!checked_add(place.address, box, &end)) {
    return Status::fail(Code::invalid_size, "the box reaches beyond the end of the address space", box);
  }
  *extent = box;
  return {};
}

char* bytes_at(std::uint64_t address) { return reinterpret_cast<char*>(address); }

// Rows that touch are one long row, planes that touch are more rows; both sides must agree. A lone row has no pitch.
void collapse(Pitched& a, Pitched& b, CopyShape& shape) {
  if (shape.height > 1 && a.row_pitch == shape.width && b.row_pitch == shape.width) {
    shape.width *= shape.height;
    shape.height = 1;
  }
  if (shape.depth == 1) return;
  const bool one_row = shape.height == 1;
  const bool a_follows = one_row || a.plane_pitch == a.row_pitch * shape.height;
  const bool b_follows = one_row || b.plane_pitch == b.row_pitch * shape.height;
  if (!a_follows || !b_follows) return;
  if (one_row) {
    a.row_pitch = a.plane_pitch;
    b.row_pitch = b.plane_pitch;
  }
  shape.height *= shape.depth;
  shape.depth = 1;
  if (a.row_pitch != shape.width || b.row_pitch != shape.width) return;
  shape.width *= shape.height;
  shape.height = 1;
}

// Narrow rows: a call per row would cost more than the bytes.
template <std::uint64_t width>
void copy_narrow_rows(char* to, std::uint64_t to_pitch, const char* from, std::uint64_t from_pitch,
                      std::uint64_t rows) {
  for (std::uint64_t row = 0; row < rows; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
}

void copy_rows(char* to, std::uint64_t to_pitch, const char* from, std::uint64_t from_pitch, std::uint64_t width,
               std::uint64_t rows) {
  switch (width) {
    case 1:
      return copy_narrow_rows<1>(to, to_pitch, from, from_pitch, rows);
    case 2:
      return copy_narrow_rows<2>(to, to_pitch, from, from_pitch, rows);
    case 4:
      return copy_narrow_rows<4>(to, to_pitch, from, from_pitch, rows);
    case 8:
      return copy_narrow_rows<8>(to, to_pitch, from, from_pitch, rows);
    case 16:
      return copy_narrow_rows<16>(to, to_pitch, from, from_pitch, rows);
    default:
      // Interleaved boxes are not checked for overlap; `memmove` is as fast and never undefined.
      for (std::uint64_t row = 0; row < rows; ++row) std::memmove(to + row * to_pitch, from + row * from_pitch, width);
  }
}

std::uint64_t repeat_over_word(std::uint64_t value, std::uint32_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return (value & 0xff) * 0x0101010101010101ULL;
    case 2:
      return (value & 0xffff) * 0x0001000100010001ULL;
    case 4:
      return (value & 0xffffffff) * 0x0000000100000001ULL;
    default:
      return value;
  }
}

bool is_one_byte_repeated(std::uint64_t word) { return word == (word & 0xff) * 0x0101010101010101ULL; }

void fill_row(char* to, std::uint64_t width, std::uint64_t word) {
  const std::uint64_t whole = align_down(width, sizeof word);
  for (std::uint64_t i = 0; i < whole; i += sizeof word) std::memcpy(to + i, &word, sizeof word);
  // A row ends between elements, so its tail is the beginning of the word.
  std::memcpy(to + whole, &word, width - whole);
}

}  // namespace

Status check_copy(const CopyWork& work) noexcept {
  std::uint64_t to_extent = 0;
  std::uint64_t from_extent = 0;
  TM_TRY(check_shape(work.shape));
  TM_TRY(check_place(work.destination, work.shape, &to_extent));
  TM_TRY(check_place(work.source, work.shape, &from_extent));
  // Two boxes inside one picture may interleave without touching; two plain ranges may not.
  const std::uint64_t bytes = work.shape.width * work.shape.height * work.shape.depth;
  const bool both_plain = to_extent == bytes && from_extent == bytes;
  const std::uint64_t to = work.destination.address;
  const std::uint64_t from = work.source.address;
  if (both_plain && to < from + bytes && from < to + bytes) {
    return Status::fail(Code::invalid_argument, "source and destination overlap");
  }
  return {};
}

Status check_fill(const FillWork& work) noexcept {
  std::uint64_t extent = 0;
  TM_TRY(check_shape(work.shape));
  TM_TRY(check_place(work.destination, work.shape, &extent));
  if (!is_power_of_two(work.element_bytes) || work.element_bytes > 8) {
    return Status::fail(Code::invalid_argument, "an element to fill with has 1, 2, 4 or 8 bytes");
  }
  if (!is_aligned(work.shape.width, work.element_bytes)) {
    return Status::fail(Code::invalid_argument, "the width is not a multiple of the element to fill with");
  }
  return {};
}

void run_copy(const CopyWork& work) noexcept {
  Pitched to = work.destination;
  Pitched from = work.source;
  CopyShape shape = work.shape;
  collapse(to, from, shape);
  for (std::uint64_t plane = 0; plane < shape.depth; ++plane) {
    copy_rows(bytes_at(to.address + plane * to.plane_pitch), to.row_pitch,
              bytes_at(from.address + plane * from.plane_pitch), from.row_pitch, shape.width, shape.height);
  }
}

void run_fill(const FillWork& work) noexcept {
  Pitched to = work.destination;
  Pitched same = work.destination;
  CopyShape shape = work.shape;
  collapse(to, same, shape);
  const std::uint64_t word = repeat_over_word(work.value, work.element_bytes);
  const bool one_byte = is_one_byte_repeated(word);
  for (std::uint64_t plane = 0; plane < shape.depth; ++plane) {
    for (std::uint64_t row = 0; row < shape.height; ++row) {
      char* const row_start = bytes_at(to.address + plane * to.plane_pitch + row * to.row_pitch);
      if (one_byte) {
        std::memset(row_start, static_cast<int>(word & 0xff), shape.width);
      } else {
        fill_row(row_start, shape.width, word);
      }
    }
  }
}

}  // namespace tensormem::host

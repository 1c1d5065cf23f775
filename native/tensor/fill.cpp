#include "tensor/fill.hpp"

#include <algorithm>
#include <cstring>

#include "driver/host/host_driver.hpp"

namespace tensormem {

namespace {

// The shortest beginning of the element that repeats to the whole of it.
std::uint64_t pattern_bytes(const std::uint8_t* element, std::uint64_t item_bytes) {
  for (std::uint64_t size = 1; size < item_bytes; size *= 2) {
    if (item_bytes % size == 0 && std::memcmp(element, element + size, item_bytes - size) == 0) return size;
  }
  return item_bytes;
}

// GPUs fill whole words: address and distances are multiples of one.
bool is_aligned_for(const FillRequest& request, std::uint64_t word) {
  std::uint64_t places = request.to.address;
  for (std::int32_t i = 0; i < request.ndim; ++i) {
    if (request.shape[i] > 1) places |= static_cast<std::uint64_t>(request.to.byte_strides[i]);
  }
  return places % word == 0;
}

// The widest word of the driver's that the value is made of.
std::uint64_t word_bytes(const Driver& driver, const FillRequest& request) {
  const bool host = &driver == &host_driver();
  const std::uint64_t pattern = pattern_bytes(request.element, request.item_bytes);
  for (std::uint64_t word = host ? 8 : 4; word > 1; word /= 2) {
    if (pattern % word == 0 && (host || is_aligned_for(request, word))) return word;
  }
  return 1;
}

struct Part {
  CopyPlan plan;
  CopyBox box;
  std::int32_t outer = 0;
  std::uint64_t value = 0;
};

Status plan_part(const FillRequest& request, std::uint64_t offset, std::uint64_t item_bytes, std::uint64_t word,
                 Part* part, std::uint64_t* calls) {
  StridedPlace to = request.to;
  to.address += offset;
  TM_TRY(plan_copy(request.ndim, request.shape, item_bytes, to, to, &part->plan));
  *calls = 0;
  if (part->plan.run == 0) return {};
  std::memcpy(&part->value, request.element + offset, word);
  if (!as_box(part->plan, &part->box, &part->outer)) {
    *calls = ~0ULL;
    return {};
  }
  part->box.to.device = request.device;
  *calls = 1;
  for (std::int32_t i = 0; i < part->outer; ++i)
    *calls *= static_cast<std::uint64_t>(part->plan.length[static_cast<std::size_t>(i)]);
  return {};
}

Status fill_boxes(Driver& driver, const Part& part, std::int32_t level, Pitched to, std::uint32_t word,
                  StreamId stream) {
  if (level == part.outer) return driver.fill(to, part.box.shape, part.value, word, stream);
  const auto at = static_cast<std::size_t>(level);
  for (std::int64_t i = 0; i < part.plan.length[at]; ++i) {
    TM_TRY(fill_boxes(driver, part, level + 1, to, word, stream));
    to.address += static_cast<std::uint64_t>(part.plan.to_stride[at]);
  }
  return {};
}

// HIP fills rows with single bytes only: rows of words are a call each, unlike copies.
bool fills_rows_of_words(const Driver& driver) { return std::strcmp(driver.name(), "rocm") != 0; }

// Elements without gaps, of a value wider than a word: the first one by words, and then what is filled is copied behind
// itself until all is.
Status fill_by_doubling(Driver& driver, const FillRequest& request, const CopyPlan& whole, std::uint64_t word,
                        StreamId stream) {
  Pitched to{whole.to, request.device, 0, 0};
  for (std::uint64_t offset = 0; offset < request.item_bytes; offset += word) {
    std::uint64_t value = 0;
    std::memcpy(&value, request.element + offset, word);
    to.address = whole.to + offset;
    TM_TRY(driver.fill(to, {word, 1, 1}, value, static_cast<std::uint32_t>(word), stream));
  }
  const Pitched from{whole.to, request.device, 0, 0};
  for (std::uint64_t done = request.item_bytes; done < whole.run; done *= 2) {
    to.address = whole.to + done;
    TM_TRY(driver.copy(to, from, {std::min(done, whole.run - done), 1, 1}, stream));
  }
  return {};
}

}  // namespace

Status fill_layout(Driver& driver, const FillRequest& request, std::uint64_t most_calls, StreamId stream,
                   bool* filled) {
  const std::uint64_t word = word_bytes(driver, request);
  const bool at_once = pattern_bytes(request.element, request.item_bytes) == word;
  const std::uint64_t step = at_once ? request.item_bytes : word;
  Part part;
  std::uint64_t calls = 0;
  if (!at_once && !fills_rows_of_words(driver)) {
    TM_TRY(plan_part(request, 0, request.item_bytes, word, &part, &calls));
    if (part.plan.ndim == 0 && part.plan.run != 0) {
      *filled = true;
      return fill_by_doubling(driver, request, part.plan, word, stream);
    }
  }
  TM_TRY(plan_part(request, 0, step, word, &part, &calls));
  *filled = calls <= most_calls;
  if (!*filled || calls == 0) return {};
  for (std::uint64_t offset = 0; offset < request.item_bytes; offset += step) {
    if (offset != 0) TM_TRY(plan_part(request, offset, step, word, &part, &calls));
    TM_TRY(fill_boxes(driver, part, 0, part.box.to, static_cast<std::uint32_t>(word), stream));
  }
  return {};
}

}  // namespace tensormem

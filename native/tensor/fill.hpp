// Owns: setting every element of a layout to one value with the fills a driver has: which words, in which boxes.
// Must not know: who waits for it.
#pragma once

#include <cstdint>

#include "driver/driver.hpp"
#include "tensor/copy_plan.hpp"

namespace tensormem {

// The elements to fill, and the bytes of one of them.
struct FillRequest {
  std::int32_t ndim = 0;
  const std::int64_t* shape = nullptr;
  StridedPlace to;
  std::int32_t device = 0;
  const std::uint8_t* element = nullptr;
  std::uint64_t item_bytes = 1;
};

// On `stream`, with one call where the layout is one box and the value repeats a word that the driver fills with; wider
// values take a call for each of their words. `*filled` is false, and nothing was done, where it would take more than
// `most_calls`.
Status fill_layout(Driver& driver, const FillRequest& request, std::uint64_t most_calls, StreamId stream, bool* filled);

}  // namespace tensormem

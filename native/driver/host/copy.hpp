// Owns: copying and filling boxes of bytes in host memory: what may be asked (checked before anything is queued), and
// the loops, which fall together into one call where rows or planes touch.
// Must not know: streams. The work is a plain value that any thread can run.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

struct CopyWork {
  Pitched destination;
  Pitched source;
  CopyShape shape;
};

struct FillWork {
  Pitched destination;
  CopyShape shape;
  std::uint64_t value;
  std::uint32_t element_bytes;
};

Status check_copy(const CopyWork& work) noexcept;
Status check_fill(const FillWork& work) noexcept;

// Only for work that passed its check.
void run_copy(const CopyWork& work) noexcept;
void run_fill(const FillWork& work) noexcept;

}  // namespace tensormem::host

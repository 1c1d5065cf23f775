// Owns: what a debug guard has found out about one block: whose it was, what was damaged, and both stacks.
// Must not know: how it was found.
#pragma once

#include <cstdint>

#include "alloc/block.hpp"
#include "base/status.hpp"
#include "resource/captured_stack.hpp"
#include "resource/guard_bands.hpp"

namespace tensormem {

enum class GuardDamageKind : std::uint8_t { underflow = 0, overflow = 1, use_after_free = 2 };

struct GuardFinding {
  Block block;  // as its owner had it
  GuardDamageKind kind = GuardDamageKind::overflow;
  GuardDamage damage;
  CapturedStack allocated_at;
  CapturedStack freed_at;  // null while the block is live
};

// The failure that tells of it. The third fact of `out_of_bounds` is the offset, a negative one in two's complement.
inline Status status_of(const GuardFinding& finding) {
  if (finding.kind == GuardDamageKind::use_after_free)
    return Status::fail(Code::use_after_free, "the block was written to after it was given back",
                        finding.block.generation, finding.block.address);
  return Status::fail(Code::out_of_bounds,
                      finding.kind == GuardDamageKind::underflow ? "bytes before the block were overwritten"
                                                                 : "bytes behind the block were overwritten",
                      finding.block.generation, finding.block.address, finding.damage.offset);
}

}  // namespace tensormem

// Owns: one piece of upstream memory and the allocator of its offsets. A live range of it is either a block or pending:
// given back on a stream that may not have passed, and reusable on that stream at once.
// Must not know: streams, locks, the other chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "alloc/block.hpp"
#include "alloc/offset_allocator.hpp"

namespace tensormem {

// Every block starts at a multiple of this, so the common alignment needs no search.
inline constexpr std::uint64_t kPoolGranule = 256;

struct PoolChunk {
  Block memory;  // the upstream's
  OffsetAllocator space;

  std::uint64_t address_of(std::uint32_t node) const { return memory.address + space.offset(node); }
  bool is_empty() const { return space.used() == 0; }
};

using PoolChunks = std::vector<std::unique_ptr<PoolChunk>>;

}  // namespace tensormem

// Owns: one piece of upstream memory of a pool, and one slab: a piece of a chunk that small blocks are cut from. Where
// the ranges in them are is told by two offset allocators, whose offsets are addresses: a chunk is a span of the one
// for large blocks, a slab is a live range there and a span of the one for small blocks.
// Must not know: streams, locks, the other chunks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "alloc/block.hpp"
#include "alloc/offset_allocator.hpp"

namespace tensormem {

// Every block starts at a multiple of this, so the common alignment needs no search.
inline constexpr std::uint64_t kPoolGranule = 256;
// From this size on a block has a chunk that was made for it, or one that fits it well.
inline constexpr std::uint64_t kLargeBlock = 256ULL << 10;

enum PoolRoom : std::uint32_t { kSmallRoom = 0, kLargeRoom = 1, kPoolRooms = 2 };

struct PoolChunk {
  Block memory;  // the upstream's
  std::uint32_t span = kNoNode;
  bool is_initial = false;  // what the pool began with: meant to be cut, and the last to go back
};

struct PoolSlab {
  std::uint32_t node = kNoNode;  // its range in the chunk
  std::uint32_t span = kNoNode;  // what is cut from it
};

using PoolChunks = std::vector<PoolChunk>;

// By address. The one that an address lies in, or the end.
template <typename Piece>
typename std::map<std::uint64_t, Piece>::iterator piece_at(std::map<std::uint64_t, Piece>& pieces,
                                                           std::uint64_t address) {
  const auto after = pieces.upper_bound(address);
  return after == pieces.begin() ? pieces.end() : std::prev(after);
}

// The span of the piece that follows an address.
template <typename Piece>
std::uint32_t span_after(const std::map<std::uint64_t, Piece>& pieces, std::uint64_t address) {
  const auto after = pieces.upper_bound(address);
  return after == pieces.end() ? kNoNode : after->second.span;
}

}  // namespace tensormem

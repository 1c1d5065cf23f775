// Two rooms of a pool: large blocks in chunks of their own, small ones in slabs; and what may be lost by cutting.
#include <algorithm>
#include <bit>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "resource/pool_memory_resource.hpp"
#include "resource/pool_miss.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kSmallestSlab = 256ULL << 10;
constexpr std::uint64_t kSmallestRounding = 64ULL << 10;
// A pool that has to give chunks back to take others loses time: the more often, the more it may lose by cutting.
constexpr double kLossAtFirst = 0.02;
constexpr double kLossPerSwap = 0.01 / 256;
constexpr double kMostLoss = 0.5;

}  // namespace

// As much as is missing: a slab that is a small share of what there is, so that the number of growths stays small
// however large the pool becomes, or what a large block needs, so that blocks of nearly its size fit later.
std::uint64_t PoolMemoryResource::step(PoolRoom room, std::uint64_t need) const {
  if (options_.chunk_bytes != 0) return options_.chunk_bytes;
  if (room == kSmallRoom) {
    const std::uint64_t slab = align_up(std::max(kSmallestSlab, reserved_ / 64), kSmallestSlab);
    return need < slab / 16 ? slab : (slab + need - 1) / need * need;  // blocks of one size leave nothing over
  }
  return align_up(need, std::max(kSmallestRounding, std::bit_floor(need) / 64));
}

// ---- cutting ------------------------------------------------------------------------------------------------------

std::uint64_t PoolMemoryResource::may_be_lost() const {
  const double share = std::min(kMostLoss, kLossAtFirst + kLossPerSwap * static_cast<double>(swaps_));
  return static_cast<std::uint64_t>(share * static_cast<double>(stats_.peak_bytes));
}

// What is unused in chunks that are not empty.
std::uint64_t PoolMemoryResource::lost_by_cutting() const {
  const OffsetAllocator& space = spaces_[kLargeRoom];
  std::uint64_t lost = space.total_free() - idle_bytes();
  for (const auto& [stream, ranges] : pending_[kLargeRoom]) {
    ranges.for_each([&](const PendingRange& range) {
      std::uint64_t beside = 0;
      if (!space.is_alone(range.name.node, &beside)) lost += range.size;
    });
  }
  return lost;
}

bool PoolMemoryResource::cuts_too_much(std::uint32_t node, std::uint64_t unused) {
  const OffsetAllocator& space = spaces_[kLargeRoom];
  std::uint64_t beside = 0;
  if (!space.is_alone(node, &beside) || beside + unused == 0) return false;
  if (piece_at(chunks_, space.offset(node))->second.is_initial) return false;
  return lost_by_cutting() + unused > may_be_lost();
}

std::uint64_t PoolMemoryResource::idle_bytes() const {
  std::uint64_t idle = 0;
  for (const auto& [address, chunk] : chunks_) {
    if (spaces_[kLargeRoom].span_is_free(chunk.span)) idle += chunk.memory.nbytes;
  }
  return idle;
}

// ---- slabs --------------------------------------------------------------------------------------------------------

// One that follows another without a gap becomes part of it: nothing is lost between them.
Status PoolMemoryResource::add_slab(std::uint64_t address, std::uint64_t nbytes, std::uint32_t node, RangeName* whole) {
  OffsetAllocator& space = spaces_[kSmallRoom];
  const std::uint32_t next = span_after(slabs_, address);
  Allocation all;
  const std::uint32_t before = spaces_[kLargeRoom].live_before(node);
  const auto neighbour = piece_at(slabs_, address);
  if (before != kNoNode && neighbour != slabs_.end() && neighbour->second.node == before) {
    TM_TRY(space.extend_span(address, nbytes, next, &all));
    spaces_[kLargeRoom].merge(before);
  } else {
    std::uint32_t span = kNoNode;
    TM_TRY(space.add_span(address, nbytes, next, &span));
    space.take_span(span, &all);
    slabs_.emplace(address, PoolSlab{node, span});
  }
  *whole = {kSmallRoom, all.node};
  return {};
}

void PoolMemoryResource::remove_slab(std::map<std::uint64_t, PoolSlab>::iterator slab) {
  spaces_[kSmallRoom].remove_span(slab->second.span);
  free_range({kLargeRoom, slab->second.node});
  slabs_.erase(slab);
}

void PoolMemoryResource::remove_free_slabs() {
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const auto here = slab++;
    if (spaces_[kSmallRoom].span_is_free(here->second.span)) remove_slab(here);
  }
}

// An empty chunk is left for a large block, unless it is as large as the slab, or what the pool began with.
bool PoolMemoryResource::carve_slab(std::uint64_t nbytes, const Misses& misses) {
  OffsetAllocator& space = spaces_[kLargeRoom];
  Allocation range;
  if (space.total_free() < nbytes || !space.allocate(nbytes, kPoolGranule, &range).ok()) return false;
  std::uint64_t beside = 0;
  RangeName whole;
  const bool is_left_over =
      !space.is_alone(range.node, &beside) || beside == 0 || piece_at(chunks_, range.offset)->second.is_initial;
  if (!is_left_over || !add_slab(range.offset, range.size, range.node, &whole).ok()) {
    free_range({kLargeRoom, range.node});
    return false;
  }
  return hand_out_whole(whole, misses, false);
}

// ---- new memory ---------------------------------------------------------------------------------------------------

bool PoolMemoryResource::hand_out_whole(RangeName whole, const Misses& misses, bool pending) {
  OffsetAllocator& space = spaces_[whole.chunk];
  const StreamId stream = misses.empty() ? kDefaultStream : misses.front()->request.stream;
  std::vector<RangeName> left;
  RangeName rest = whole;
  bool has_rest = true;
  bool served = misses.empty();
  // Cuts the first `nbytes` off the rest.
  const auto cut = [&](std::uint64_t nbytes, RangeName* piece) {
    if (!has_rest || space.size(rest.node) < nbytes) return false;
    *piece = rest;
    if (space.size(rest.node) == nbytes) {
      has_rest = false;
      return true;
    }
    return space.split(piece->node, nbytes, &rest.node).ok();
  };
  for (const MissPtr& miss : misses) {
    if (miss->state != Miss::State::boarded || !has_rest) continue;
    const std::uint64_t need = align_up(range_bytes(miss->request), kPoolGranule);
    const std::uint64_t start = space.offset(rest.node);
    const std::uint64_t padding = align_up(start, miss->request.alignment) - start;
    RangeName piece;
    if (space.size(rest.node) < padding || space.size(rest.node) - padding < need) continue;
    if (padding != 0) {
      if (!cut(padding, &piece)) continue;
      left.push_back(piece);
    }
    if (!cut(need, &piece)) continue;
    hand_out(miss->request, piece, &miss->block);
    miss->state = Miss::State::served;
    served = true;
  }
  if (has_rest) left.push_back(rest);
  for (const RangeName& each : left) {
    if (pending && served) {
      add_pending(each, stream);
    } else {
      free_range(each);
    }
  }
  return served;
}

}  // namespace tensormem

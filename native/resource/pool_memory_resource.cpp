// The paths that every allocation takes, and the bookkeeping of ranges. Growing, waiting and giving back:
// pool_growth.cpp.
#include "resource/pool_memory_resource.hpp"

#include <algorithm>
#include <bit>
#include <mutex>

#include "base/align.hpp"
#include "base/blocking.hpp"
#include "base/invariant.hpp"

namespace tensormem {

PoolMemoryResource::PoolMemoryResource(ResourcePtr upstream, const PoolOptions& options)
    : Resource(upstream.get()),
      upstream_(std::move(upstream)),
      options_(options),
      largest_block_(options.block_bytes == 0 ? kNoOverflowLimit : options.block_bytes),
      large_from_(options.chunk_bytes == 0 ? kLargeBlock : ~0ULL),
      default_is_inline_(driver().stream_is_inline(kDefaultStream)),
      parks_(options.release_threshold == kNoOverflowLimit),
      order_(driver(), device()) {}

Status PoolMemoryResource::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  if (request.nbytes > largest_block_) [[unlikely]]
    return refuse_large(request.nbytes);
  {
    const std::lock_guard lock(lock_);
    if (runs_inline(request.stream)) [[likely]] {
      if (take_parked(request, block) || take_free(request, block)) [[likely]]
        return {};
    } else if (take_own(request, block)) {
      return {};
    }
  }
  return allocate_slowly(request, block);
}

Status PoolMemoryResource::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(check_stream(stream));
  {
    Lock lock(lock_);
    TM_TRY(check_live(block));
    if (stream == block.stream && (uses_.empty() || !uses_.contains(block.generation))) [[likely]] {
      stats_.on_free(block.nbytes);
      end_range(block, stream);
      *end = BlockState::freed;
    } else {
      TM_TRY(end_behind_others(lock, block, stream, end));
    }
    if (!has_surplus(block)) [[likely]]
      return {};
  }
  // The block is back whatever the upstream says to its chunk; whoever calls trim() is told.
  std::uint64_t released = 0;
  (void)trim(options_.release_threshold, &released).ok();
  return {};
}

std::uint64_t PoolMemoryResource::bytes_outstanding() const {
  const std::lock_guard lock(lock_);
  return stats_.current_bytes;
}

Stats PoolMemoryResource::stats() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

BlockState PoolMemoryResource::state_of(const Block& block) const {
  const std::lock_guard lock(lock_);
  if (!is_ours(block)) return BlockState::freed;
  const std::uint64_t user = spaces_[block.chunk].user(block.slot);
  if (user == block.generation) return BlockState::live;
  return user == (block.generation | kRetiredBit) ? BlockState::retired : BlockState::freed;
}

Status PoolMemoryResource::prepare_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  Uses others;
  {
    Lock lock(lock_);
    BlockUses* uses = nullptr;
    TM_TRY(uses_of(lock, block, stream, &uses));
    if (uses != nullptr) others = uses->conflicts(stream, access);
  }
  if (others.empty()) return {};
  const BlockingRegion region;  // on a stream that runs inline this waits
  return order_.wait_for(others, stream);
}

Status PoolMemoryResource::finish_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  Lock lock(lock_);
  TM_TRY(check_live(block));
  lock.unlock();
  EventRef event;
  TM_TRY(order_.mark(stream, &event));
  lock.lock();
  BlockUses* uses = nullptr;
  TM_TRY(uses_of(lock, block, stream, &uses));
  if (uses == nullptr) {
    uses = &uses_[block.generation];
    if (stream == block.stream) access = Access::write;  // it stands for the block's being ready, too
  }
  uses->finished(stream, access, std::move(event));
  return {};
}

// A range that was pending comes to its block before its stream has passed: being ready for that stream is the block's
// first write, and other streams wait for it. One event behind the stream, made when another stream comes along.
Status PoolMemoryResource::uses_of(Lock& lock, const Block& block, StreamId stream, BlockUses** uses) {
  TM_TRY(check_live(block));
  if (const auto found = uses_.find(block.generation); found != uses_.end()) {
    *uses = &found->second;
    return {};
  }
  if (stream == block.stream || runs_inline(block.stream)) return {};
  lock.unlock();
  EventRef ready;
  Status marked = order_.mark(block.stream, &ready);
  lock.lock();
  TM_TRY(check_live(block));  // another thread may have given it back meanwhile
  if (!marked.ok()) {
    if (driver().stream_is_valid(block.stream)) return marked;
    return {};  // destroyed: its work is done
  }
  const auto [place, fresh] = uses_.try_emplace(block.generation);
  if (fresh) place->second.finished(block.stream, Access::write, std::move(ready));
  *uses = &place->second;
  return {};
}

// ---- ranges -------------------------------------------------------------------------------------------------------

inline bool PoolMemoryResource::take_parked(const AllocRequest& request, Block* block) {
  RangeName name;
  if (request.alignment > kPoolGranule || !parked_.take(granules(request.nbytes), &name)) return false;
  hand_out(request, name, block);
  return true;
}

bool PoolMemoryResource::take_free(const AllocRequest& request, Block* block) {
  return take_from(room_of(request), request, block);
}

bool PoolMemoryResource::take_from(PoolRoom room, const AllocRequest& request, Block* block, Cut cut) {
  OffsetAllocator& space = spaces_[room];
  const std::uint64_t need = range_bytes(request);
  if (space.total_free() < need) return false;
  Allocation range;
  const Status taken = room == kSmallRoom ? space.allocate(need, request.alignment, &range)
                                          : space.allocate_closest(need, request.alignment, &range);
  if (!taken.ok()) return false;
  if (room == kLargeRoom && cut == Cut::with_care && cuts_too_much(range.node, 0)) {
    free_range({room, range.node});
    return false;
  }
  hand_out(request, {room, range.node}, block);
  return true;
}

// What the stream gave back itself goes first.
bool PoolMemoryResource::take_own(const AllocRequest& request, Block* block) {
  Pendings& pending = pending_[room_of(request)];
  const auto own = pending.find(request.stream);
  return (own != pending.end() && take_pending(own->second, request, block)) || take_free(request, block);
}

bool PoolMemoryResource::take_pending(PendingRanges& ranges, const AllocRequest& request, Block* block,
                                      std::uint64_t until, Cut cut) {
  const std::uint64_t need = align_up(range_bytes(request), kPoolGranule);
  const auto fits = [&](const PendingRange& range) {
    return range.since <= until && is_aligned(spaces_[range.name.chunk].offset(range.name.node), request.alignment);
  };
  PendingRange found;
  if (ranges.take_parked(need, fits, &found)) {
    hand_out(request, found.name, block);
    return true;
  }
  if (!ranges.take(need, fits, &found)) {
    if (!ranges.has_parked()) return false;
    ranges.unpark([&](const PendingRange& parked) { join_pending(ranges, parked); });
    if (!ranges.take(need, fits, &found)) return false;
  }
  if (found.size > need) {
    if (found.name.chunk == kLargeRoom && cut == Cut::with_care && cuts_too_much(found.name.node, found.size - need)) {
      ranges.add(found);
      return false;
    }
    PendingRange rest = found;
    if (!spaces_[found.name.chunk].split(found.name.node, need, &rest.name.node).ok()) {
      ranges.add(found);
      return false;
    }
    rest.size = found.size - need;
    ranges.add(rest);
  }
  hand_out(request, found.name, block);
  return true;
}

void PoolMemoryResource::hand_out(const AllocRequest& request, RangeName name, Block* block) {
  OffsetAllocator& space = spaces_[name.chunk];
  const std::uint64_t generation = generations_.next();
  space.set_user(name.node, generation);
  stats_.on_allocate(request.nbytes);
  block->address = space.offset(name.node);
  block->nbytes = request.nbytes;
  block->generation = generation;
  block->stream = request.stream;
  block->tag = request.tag;
  block->origin = id();
  block->slot = name.node;
  block->chunk = static_cast<std::uint16_t>(name.chunk);
  block->alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(request.alignment));
  block->zeroed = false;
}

bool PoolMemoryResource::is_ours(const Block& block) const {
  return block.origin == id() && block.chunk < kPoolRooms && spaces_[block.chunk].is_live(block.slot);
}

Status PoolMemoryResource::check_live(const Block& block) const {
  if (is_ours(block) && spaces_[block.chunk].user(block.slot) == block.generation) [[likely]]
    return {};
  if (block.origin != id())
    return Status::fail(Code::foreign_block, "another resource made this block", block.generation, block.address);
  return Status::fail(Code::use_after_free, "the block was given back before", block.generation, block.address);
}

// The block is no more: its range is free for everyone, or for its stream.
inline void PoolMemoryResource::end_range(const Block& block, StreamId stream) {
  RangeName name{block.chunk, block.slot};
  if (!runs_inline(stream)) return add_pending(name, stream);
  spaces_[name.chunk].set_user(name.node, 0);
  if (!parks_ || parked_.park(name, granules(block.nbytes), &name)) free_range(name);
}

void PoolMemoryResource::free_range(RangeName name) {
  const Status freed = spaces_[name.chunk].deallocate(name.node);
  TM_ASSERT(freed.ok());
  (void)freed.ok();
}

void PoolMemoryResource::free_parked() {
  parked_.take_all([this](RangeName name) { free_range(name); });
}

void PoolMemoryResource::add_pending(RangeName name, StreamId stream) {
  PendingRanges& ranges = pending_[name.chunk].try_emplace(stream, stream).first->second;
  OffsetAllocator& space = spaces_[name.chunk];
  space.set_user(name.node, 0);
  PendingRange evicted;
  if (ranges.park({name, space.size(name.node), ++deallocations_}, &evicted)) join_pending(ranges, evicted);
}

// It becomes one with its neighbours, unless they are parked.
void PoolMemoryResource::join_pending(PendingRanges& ranges, PendingRange range) {
  OffsetAllocator& space = spaces_[range.name.chunk];
  PendingRange neighbour;
  if (ranges.remove({range.name.chunk, space.live_after(range.name.node)}, &neighbour)) {
    space.merge(range.name.node);
    range.size += neighbour.size;
    range.since = std::max(range.since, neighbour.since);
  }
  if (ranges.remove({range.name.chunk, space.live_before(range.name.node)}, &neighbour)) {
    space.merge(neighbour.name.node);
    range.name = neighbour.name;
    range.size += neighbour.size;
    range.since = std::max(range.since, neighbour.since);
  }
  ranges.add(range);
}

// Whether its chunk is empty without it, and the pool has more than it should keep.
bool PoolMemoryResource::has_surplus(const Block& block) {
  if (reserved_ <= options_.release_threshold) return false;
  if (block.chunk == kSmallRoom) {
    const auto slab = piece_at(slabs_, block.address);
    if (!spaces_[kSmallRoom].span_is_free(slab->second.span)) return false;
    remove_slab(slab);
  }
  return spaces_[kLargeRoom].span_is_free(piece_at(chunks_, block.address)->second.span);
}

bool PoolMemoryResource::is_valid() const {
  const std::lock_guard lock(lock_);
  std::uint64_t reserved = 0;
  std::uint64_t live = 0;
  for (const auto& [address, chunk] : chunks_) {
    reserved += chunk.memory.nbytes;
    if (address != chunk.memory.address) return false;
  }
  for (const auto& [address, slab] : slabs_) {
    if (!spaces_[kLargeRoom].is_live(slab.node) || spaces_[kLargeRoom].offset(slab.node) != address) return false;
  }
  for (const OffsetAllocator& space : spaces_) {
    if (!space.is_valid()) return false;
    space.for_each([&](std::uint64_t, std::uint64_t, bool is_free, std::uint32_t node) {
      if (!is_free && space.user(node) != 0) ++live;
    });
  }
  for (const Pendings& pending : pending_) {
    for (const auto& [stream, ranges] : pending) {
      if (ranges.stream != stream || !ranges.is_valid()) return false;
    }
  }
  for (const auto& [generation, uses] : uses_) {
    if (!uses.is_valid()) return false;
  }
  return reserved == reserved_ && reserved == spaces_[kLargeRoom].capacity() && live == stats_.current_count &&
         retired_.size() == stats_.retired_count && retired_.is_valid() && parked_.is_valid();
}

}  // namespace tensormem

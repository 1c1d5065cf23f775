// The slow half of the pool: waiting for streams, taking from other streams, growing and giving back.
#include <algorithm>
#include <mutex>

#include "base/align.hpp"
#include "base/blocking.hpp"
#include "base/invariant.hpp"
#include "resource/pool_memory_resource.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kSmallestChunk = 1ULL << 20;
constexpr std::uint64_t kChunkAlignment = 4096;
constexpr std::size_t kMaxChunks = 1U << 16;

}  // namespace

Status PoolMemoryResource::create(ResourcePtr upstream, const PoolOptions& options,
                                  std::shared_ptr<PoolMemoryResource>* out) {
  if (options.initial_bytes > options.maximum_bytes)
    return Status::fail(Code::invalid_size, "the pool starts larger than it may become", options.initial_bytes);
  std::shared_ptr<PoolMemoryResource> pool(new PoolMemoryResource(std::move(upstream), options));
  if (options.initial_bytes != 0)
    TM_TRY(pool->add_chunk(align_up(options.initial_bytes, kPoolGranule), kChunkAlignment));
  *out = std::move(pool);
  return {};
}

PoolMemoryResource::~PoolMemoryResource() {
  // Nobody holds a block any more. What cannot be proven done keeps its chunk from going back: a leak, not a crash.
  (void)wait_for_pending().ok();
  std::uint64_t released = 0;
  (void)trim(0, &released).ok();
}

Status PoolMemoryResource::allocate_slowly(const AllocRequest& request, Block* block) {
  {
    const std::lock_guard lock(lock_);
    // What cannot be reaped is told by reap_pending() itself; here only the room counts.
    (void)reap_locked().ok();
    if (take_free(request, block)) return {};
  }
  Status grown = grow(request);
  const bool short_of_memory = grown.code() == Code::out_of_memory || grown.code() == Code::out_of_budget ||
                               grown.code() == Code::out_of_physical_memory;
  if (!grown.ok() && !short_of_memory) return grown;
  if (!grown.ok()) {
    if (runs_inline(request.stream)) {
      const BlockingRegion region;
      TM_TRY(wait_for_pending());
    } else {
      const std::lock_guard lock(lock_);
      Status ordered;
      if (steal(request, block, &ordered)) return {};
      TM_TRY(std::move(ordered));
    }
  }
  const std::lock_guard lock(lock_);
  (void)reap_locked().ok();
  if (take_free(request, block)) return {};
  if (grown.ok()) return out_of_memory(request.nbytes);
  if (grown.code() == Code::out_of_memory) {
    // Why it could not grow is the upstream's to say; what it has is the pool's.
    const PoolUsage usage = usage_locked();
    grown.set_fact(0, request.nbytes);
    grown.set_fact(1, usage.total_free);
    grown.set_fact(2, usage.largest_free);
  }
  return grown;
}

// Takes a pending range of another stream, behind an event of that stream.
bool PoolMemoryResource::steal(const AllocRequest& request, Block* block, Status* failure) {
  for (auto& [stream, ranges] : pending_) {
    if (stream == request.stream || ranges.bytes() < range_bytes(request)) continue;
    EventRef behind;
    if (!order_.mark(stream, &behind).ok()) continue;  // it is being destroyed: not this caller's concern
    if (Status ordered = order_.wait_for(Uses{{stream, behind}}, request.stream); !ordered.ok()) {
      *failure = std::move(ordered);
      return false;
    }
    if (take_pending(ranges, request, block)) return true;
  }
  return false;
}

// Other streams have to do with the block: the stream it ends on waits for them, or, when that runs inline, the block
// does.
Status PoolMemoryResource::end_behind_others(const Block& block, StreamId stream, BlockState* end) {
  BlockUses* uses = nullptr;
  TM_TRY(uses_of(block, stream, &uses));
  Uses others;
  if (uses != nullptr) others = uses->conflicts(stream, Access::write);
  bool passed = others.empty();
  if (!passed && !runs_inline(stream)) {
    TM_TRY(order_.wait_for(others, stream));
    passed = true;
  } else if (!passed) {
    TM_TRY(order_.are_done(others, &passed));
  }
  uses_.erase(block.generation);
  const RangeName name{block.chunk, block.slot};
  if (passed) {
    stats_.on_free(block.nbytes);
    if (runs_inline(stream)) {
      free_range(name);
    } else {
      add_pending(name, stream);
    }
    *end = BlockState::freed;
    return {};
  }
  chunks_[block.chunk]->space.set_user(block.slot, block.generation | kRetiredBit);
  stats_.on_retire(block.nbytes);
  retired_.push({name, block.nbytes}, std::move(others));
  *end = BlockState::retired;
  return {};
}

Status PoolMemoryResource::reap_pending() {
  std::uint64_t released = 0;
  return trim(options_.release_threshold, &released);
}

Status PoolMemoryResource::reap_locked() {
  free_parked();
  std::vector<Waiting> done;
  Status asked = retired_.take_done(order_, &done);
  for (const Waiting& waiting : done) {
    stats_.on_reap(waiting.nbytes);
    free_range(waiting.name);
  }
  promote_passed();
  return asked;
}

// Ranges whose stream has passed become free for everyone. A stream that is never idle passes a marker instead.
void PoolMemoryResource::promote_passed() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    PendingRanges& ranges = it->second;
    bool idle = !driver().stream_is_valid(ranges.stream);  // destroying a stream waits for its work
    if (!idle && !driver().stream_query(ranges.stream, &idle).ok()) idle = false;
    bool marker_passed = false;
    if (ranges.marker && !order_.are_done(Uses{{ranges.stream, ranges.marker}}, &marker_passed).ok())
      marker_passed = false;
    const auto set_free = [this](const PendingRange& range) { free_range(range.name); };
    if (idle) {
      ranges.take_until(deallocations_, set_free);
    } else if (marker_passed) {
      ranges.take_until(ranges.marked, set_free);
    }
    if (ranges.empty()) {
      it = pending_.erase(it);
      continue;
    }
    if (marker_passed || !ranges.marker) {
      ranges.marked = order_.mark(ranges.stream, &ranges.marker).ok() ? deallocations_ : 0;
    }
    ++it;
  }
}

Status PoolMemoryResource::wait_for_pending() {
  Uses until;
  {
    const std::lock_guard lock(lock_);
    for (auto& [stream, ranges] : pending_) {
      EventRef behind;
      if (!order_.mark(stream, &behind).ok()) continue;  // destroyed, or about to be: promote_passed sees when
      ranges.marker = behind;
      ranges.marked = deallocations_;
      until.push_back({stream, std::move(behind)});
    }
    retired_.append_awaited(&until);
  }
  const BlockingRegion region;
  return order_.synchronize(until);
}

// ---- chunks -------------------------------------------------------------------------------------------------------

// Half of what there is, so that the number of chunks stays small however large the pool becomes.
std::uint64_t PoolMemoryResource::step() const {
  if (options_.chunk_bytes != 0) return options_.chunk_bytes;
  return align_up(std::max(kSmallestChunk, reserved_ / 2), kSmallestChunk);
}

Status PoolMemoryResource::grow(const AllocRequest& request) {
  const std::uint64_t alignment = std::max(request.alignment, kChunkAlignment);
  const std::uint64_t need = align_up(range_bytes(request), kPoolGranule);
  std::uint64_t wanted = 0;
  {
    const std::lock_guard lock(lock_);
    if (need > options_.maximum_bytes || reserved_ > options_.maximum_bytes - need)
      return out_of_memory(request.nbytes);
    wanted = std::max(need, std::min(step(), align_down(options_.maximum_bytes - reserved_, kPoolGranule)));
  }
  Status added = add_chunk(wanted, alignment);
  // No room for a generous chunk: what was asked for may still fit.
  if (!added.ok() && wanted != need) added = add_chunk(need, alignment);
  return added;
}

Status PoolMemoryResource::add_chunk(std::uint64_t nbytes, std::uint64_t alignment) {
  {
    const std::lock_guard lock(lock_);
    if (nbytes > options_.maximum_bytes || reserved_ > options_.maximum_bytes - nbytes) return out_of_memory(nbytes);
    reserved_ += nbytes;
  }
  auto chunk = std::make_unique<PoolChunk>();
  Status added = upstream_->allocate({.nbytes = nbytes, .alignment = alignment}, &chunk->memory);
  const bool taken = added.ok();
  if (added.ok()) added = chunk->space.open(nbytes, kPoolGranule);
  if (added.ok()) added = keep(&chunk);
  if (added.ok()) return added;
  if (taken) {
    BlockState end{};
    (void)upstream_->deallocate(chunk->memory, kDefaultStream, &end).ok();
  }
  const std::lock_guard lock(lock_);
  reserved_ -= nbytes;
  return added;
}

Status PoolMemoryResource::keep(std::unique_ptr<PoolChunk>* chunk) {
  const std::lock_guard lock(lock_);
  const auto place = std::ranges::find_if(chunks_, [](const auto& each) { return each == nullptr; });
  if (place != chunks_.end()) {
    *place = std::move(*chunk);
    return {};
  }
  if (chunks_.size() == kMaxChunks)
    return Status::fail(Code::out_of_memory, "the pool has as many chunks as it can name", (*chunk)->memory.nbytes);
  chunks_.push_back(std::move(*chunk));
  return {};
}

Status PoolMemoryResource::trim(std::uint64_t keep_bytes, std::uint64_t* released) {
  std::vector<Block> empty;
  Status reaped;
  {
    const std::lock_guard lock(lock_);
    reaped = reap_locked();
    empty = take_empty_chunks(keep_bytes);
  }
  *released = 0;
  for (const Block& chunk : empty) *released += chunk.nbytes;
  TM_TRY(give_back(empty));
  return reaped;
}

// The youngest first: the oldest are the largest share of a steady load.
std::vector<Block> PoolMemoryResource::take_empty_chunks(std::uint64_t keep_bytes) {
  std::vector<Block> taken;
  for (auto place = chunks_.rbegin(); place != chunks_.rend(); ++place) {
    if (reserved_ <= keep_bytes) break;
    if (*place == nullptr || !(*place)->is_empty()) continue;
    taken.push_back((*place)->memory);
    reserved_ -= (*place)->memory.nbytes;
    place->reset();
  }
  return taken;
}

// A chunk that the upstream does not take back is no longer ours to hand out; the upstream still counts it.
Status PoolMemoryResource::give_back(const std::vector<Block>& chunks) {
  Status first_failure;
  for (const Block& chunk : chunks) {
    BlockState end{};
    Status given = upstream_->deallocate(chunk, kDefaultStream, &end);
    if (!given.ok() && first_failure.ok()) first_failure = std::move(given);
  }
  return first_failure;
}

Status PoolMemoryResource::refuse_large(std::uint64_t nbytes) {
  return Status::fail(Code::out_of_memory, "no block of this resource is that large", nbytes, usage().total_free,
                      options_.block_bytes);
}

PoolUsage PoolMemoryResource::usage() {
  const std::lock_guard lock(lock_);
  return usage_locked();
}

PoolUsage PoolMemoryResource::usage_locked() {
  free_parked();
  PoolUsage usage;
  usage.reserved_bytes = reserved_;
  for (const auto& chunk : chunks_) {
    if (chunk == nullptr) continue;
    usage.chunk_count += 1;
    usage.total_free += chunk->space.total_free();
    usage.largest_free = std::max(usage.largest_free, chunk->space.largest_free());
  }
  for (const auto& [stream, ranges] : pending_) usage.pending_bytes += ranges.bytes();
  usage.pending_bytes += stats_.retired_bytes;
  return usage;
}

Status PoolMemoryResource::out_of_memory(std::uint64_t requested) {
  const PoolUsage usage = usage_locked();
  return Status::fail(Code::out_of_memory, "no free range of the pool can hold it and it cannot grow", requested,
                      usage.total_free, usage.largest_free);
}

}  // namespace tensormem

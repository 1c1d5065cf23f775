// The slow half of the pool: waiting for streams, taking from other streams, chunks and giving back. Who grows, and for
// whom: pool_flight.cpp.
#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "base/wait.hpp"
#include "resource/pool_memory_resource.hpp"
#include "resource/pool_miss.hpp"
#include "trace/inside.hpp"

namespace tensormem {

namespace {

constexpr const char* kStillPending =
    "streams whose memory is pending did not pass in time; synchronize them first, if they do not wait for this thread";

}  // namespace

Status PoolMemoryResource::create(ResourcePtr upstream, const PoolOptions& options,
                                  std::shared_ptr<PoolMemoryResource>* out) {
  if (options.initial_bytes > options.maximum_bytes)
    return Status::fail(Code::invalid_size, "the pool starts larger than it may become", options.initial_bytes);
  std::shared_ptr<PoolMemoryResource> pool(new PoolMemoryResource(std::move(upstream), options));
  for (OffsetAllocator& space : pool->spaces_) TM_TRY(space.open(0, kPoolGranule));
  if (options.initial_bytes != 0)
    TM_TRY(pool->add_chunk(align_up(options.initial_bytes, kPoolGranule), kPoolChunkAlignment, {}));
  *out = std::move(pool);
  return {};
}

PoolMemoryResource::~PoolMemoryResource() {
  TM_WALK(is_valid());
  // Nobody holds a block any more. What cannot be proven done keeps its chunk from going back: a leak, not a crash.
  (void)wait_for_pending().ok();
  std::uint64_t released = 0;
  (void)trim(0, &released).ok();
}

Status PoolMemoryResource::allocate_without_growing(const AllocRequest& request, Status grown, Block* block) {
  if (take_passed(request, block, Cut::at_any_cost)) return {};
  if (runs_inline(request.stream)) {
    bool found = false;
    TM_TRY(wait_for_room(request, block, &found));
    if (found) return {};
  } else {
    Lock lock(lock_);
    Status ordered;
    if (steal(lock, request, block, &ordered)) return {};
    TM_TRY(std::move(ordered));
  }
  if (take_passed(request, block, Cut::at_any_cost)) return {};
  if (grown.code() == Code::out_of_memory) {
    // Why it could not grow is the upstream's to say; what it has is the pool's.
    const PoolUsage now = usage();
    if (grown.failure().cause == nullptr && may_come_free(request))
      return Status::fail(Code::out_of_memory, kStillPending, request.nbytes, now.total_free, now.largest_free);
    grown.set_fact(0, request.nbytes);
    grown.set_fact(1, now.total_free);
    grown.set_fact(2, now.largest_free);
  }
  return grown;
}

bool PoolMemoryResource::take_passed(const AllocRequest& request, Block* block, Cut cut) {
  Lock lock(lock_);
  // What cannot be reaped is told by reap_pending() itself; here only the room counts.
  (void)reap_locked(lock).ok();
  if (take_own(request, block)) return true;
  if (cut == Cut::with_care) return false;
  remove_free_slabs();
  return take_from(kLargeRoom, request, block, cut) || take_from(kSmallRoom, request, block, cut);
}

Status PoolMemoryResource::wait_for_room(const AllocRequest& request, Block* block, bool* found) {
  if (!may_come_free(request)) return {};
  Status waited = Wait::of_caller(options_.pending_timeout_ns).by_asking([&](bool* over) {
    *found = take_passed(request, block, Cut::at_any_cost);
    *over = *found || !may_come_free(request);
    return Status();
  });
  return waited.code() == Code::timed_out ? Status() : std::move(waited);
}

bool PoolMemoryResource::may_come_free(const AllocRequest& request) const {
  const std::lock_guard lock(lock_);
  const std::uint64_t need = range_bytes(request);
  std::uint64_t waiting = 0;
  bool has_room = false;  // a chunk with something waiting in it that is large enough
  const auto add = [&](RangeName name) {
    waiting += spaces_[name.chunk].size(name.node);
    const auto after = chunks_.upper_bound(spaces_[name.chunk].offset(name.node));
    has_room = has_room || (after != chunks_.begin() && std::prev(after)->second.memory.nbytes >= need);
  };
  for (const Pendings& pending : pending_) {
    for (const auto& [stream, ranges] : pending) ranges.for_each([&](const PendingRange& range) { add(range.name); });
  }
  retired_.for_each([&](const Waiting& retired) { add(retired.name); });
  return has_room && spaces_[kSmallRoom].total_free() + spaces_[kLargeRoom].total_free() + waiting >= need;
}

// What one stream has given back and not passed yet, while the driver is asked about it.
struct PoolMemoryResource::Passage {
  PoolRoom room = kSmallRoom;
  StreamId stream = kDefaultStream;
  EventRef marker;
  std::uint64_t marked = 0;
  std::uint64_t now =
      0;  // the latest deallocation when it was listed: what is asked afterwards is told of all until then
  bool idle = false;
  bool marker_passed = false;
  EventRef fresh;
};

// Takes a pending range of another stream, behind an event of that stream.
bool PoolMemoryResource::steal(Lock& lock, const AllocRequest& request, Block* block, Status* failure) {
  for (const Passage& passage : list_pending()) {
    const auto pending = pending_[passage.room].find(passage.stream);
    if (passage.stream == request.stream || pending == pending_[passage.room].end()) continue;
    if (pending->second.bytes() < range_bytes(request)) continue;
    const std::uint64_t until = deallocations_;
    lock.unlock();
    EventRef behind;
    const bool marked = order_.mark(passage.stream, &behind).ok();  // or it is being destroyed: not our concern
    if (marked) *failure = order_.wait_for(Uses{{passage.stream, behind}}, request.stream);
    lock.lock();
    if (!failure->ok()) return false;
    const auto still = pending_[passage.room].find(passage.stream);
    if (marked && still != pending_[passage.room].end() &&
        take_pending(still->second, request, block, until, Cut::at_any_cost))
      return true;
  }
  return false;
}

// Without the lock: whether the end of a block may come at once. The stream it ends on waits for the others, or, when
// that runs inline, the block does.
Status PoolMemoryResource::order_end(const Uses& others, StreamId stream, bool* passed) {
  if (runs_inline(stream)) return order_.are_done(others, passed);
  TM_TRY(order_.wait_for(others, stream));
  *passed = true;
  return {};
}

// Other streams have to do with the block. It is retired while the driver is asked, so that a second free is caught.
Status PoolMemoryResource::end_behind_others(Lock& lock, const Block& block, StreamId stream, BlockState* end) {
  BlockUses* uses = nullptr;
  TM_TRY(uses_of(lock, block, stream, &uses));
  Uses others;
  if (uses != nullptr) others = uses->conflicts(stream, Access::write);
  OffsetAllocator& space = spaces_[block.chunk];
  space.set_user(block.slot, block.generation | kRetiredBit);
  stats_.on_retire(block.nbytes);
  bool passed = others.empty();
  if (!passed) {
    lock.unlock();
    Status ordered = order_end(others, stream, &passed);
    lock.lock();
    if (!ordered.ok()) {
      space.set_user(block.slot, block.generation);
      stats_.on_revive(block.nbytes);
      return ordered;
    }
  }
  uses_.erase(block.generation);
  const RangeName name{block.chunk, block.slot};
  if (!passed) {
    retired_.push({name, block.nbytes}, std::move(others));
    *end = BlockState::retired;
    return {};
  }
  stats_.on_reap(block.nbytes);
  if (runs_inline(stream)) {
    free_range(name);
  } else {
    add_pending(name, stream);
  }
  *end = BlockState::freed;
  return {};
}

Status PoolMemoryResource::reap_pending() {
  std::uint64_t released = 0;
  return trim(options_.release_threshold, &released);
}

Status PoolMemoryResource::reap_locked(Lock& lock) {
  free_parked();
  if (pending_[kSmallRoom].empty() && pending_[kLargeRoom].empty() && retired_.empty()) return {};
  std::vector<Waiting> done;
  Status asked = retired_.take_done(order_, lock, &done);
  for (const Waiting& waiting : done) {
    stats_.on_reap(waiting.nbytes);
    free_range(waiting.name);
  }
  std::vector<Passage> passages = list_pending();
  lock.unlock();
  for (Passage& passage : passages) ask(&passage);
  lock.lock();
  for (const Passage& passage : passages) promote(passage);
  return asked;
}

std::vector<PoolMemoryResource::Passage> PoolMemoryResource::list_pending() const {
  std::vector<Passage> passages;
  passages.reserve(pending_[kSmallRoom].size() + pending_[kLargeRoom].size());
  for (const PoolRoom room : {kSmallRoom, kLargeRoom}) {
    for (const auto& [stream, ranges] : pending_[room]) {
      Passage& passage = passages.emplace_back();
      passage.room = room;
      passage.stream = stream;
      passage.marker = ranges.marker;
      passage.marked = ranges.marked;
      passage.now = deallocations_;
    }
  }
  return passages;
}

// Without the lock. A stream that is never idle passes a marker instead; where there is none, one is set.
void PoolMemoryResource::ask(Passage* passage) {
  passage->idle = !driver().stream_is_valid(passage->stream);  // destroying a stream waits for its work
  if (!passage->idle && !driver().stream_query(passage->stream, &passage->idle).ok()) passage->idle = false;
  if (passage->idle) return;
  if (passage->marker && !order_.are_done(Uses{{passage->stream, passage->marker}}, &passage->marker_passed).ok())
    passage->marker_passed = false;
  if (passage->marker && !passage->marker_passed) return;
  if (!order_.mark(passage->stream, &passage->fresh).ok()) passage->fresh = EventRef();
}

// Ranges whose stream has passed become free for everyone.
void PoolMemoryResource::promote(const Passage& passage) {
  Pendings& pending = pending_[passage.room];
  const auto found = pending.find(passage.stream);
  if (found == pending.end()) return;
  PendingRanges& ranges = found->second;
  const auto set_free = [this](const PendingRange& range) { free_range(range.name); };
  if (passage.idle) {
    ranges.take_until(passage.now, set_free);
  } else if (passage.marker_passed) {
    ranges.take_until(passage.marked, set_free);
  }
  if (ranges.empty()) {
    pending.erase(found);
  } else if (!passage.idle && ranges.marked == passage.marked && (passage.marker_passed || !passage.marker)) {
    ranges.marker = passage.fresh;
    ranges.marked = passage.fresh ? passage.now : 0;
  }
}

Status PoolMemoryResource::wait_for_pending() {
  Uses until;
  std::vector<Passage> passages;
  {
    const std::lock_guard lock(lock_);
    passages = list_pending();
    retired_.append_awaited(&until);
  }
  for (Passage& passage : passages) {
    EventRef behind;
    // One that is destroyed, or about to be, is found out by who reaps.
    if (order_.mark(passage.stream, &behind).ok()) until.push_back({passage.stream, std::move(behind)});
  }
  return order_.wait(until, Wait::of_caller());
}

// ---- chunks -------------------------------------------------------------------------------------------------------

Status PoolMemoryResource::add_chunk(std::uint64_t nbytes, std::uint64_t alignment, const Misses& misses) {
  const Growth growth(*this);
  {
    const std::lock_guard lock(lock_);
    if (nbytes > options_.maximum_bytes || reserved_ > options_.maximum_bytes - nbytes) return out_of_memory(nbytes);
    reserved_ += nbytes;
  }
  PoolChunk chunk;
  chunk.is_initial = misses.empty();
  const StreamId origin = misses.empty() ? kDefaultStream : origin_of(misses.front()->request).stream;
  const TraceInside inside;
  Status added = upstream_->allocate({.nbytes = nbytes, .alignment = alignment, .stream = origin}, &chunk.memory);
  const bool taken = added.ok();
  if (added.ok()) added = keep(chunk, misses);
  if (added.ok()) return added;
  if (taken) {
    BlockState end{};
    (void)upstream_->deallocate(chunk.memory, kDefaultStream, &end).ok();
  }
  const std::lock_guard lock(lock_);
  reserved_ -= nbytes;
  return added;
}

// An upstream that is not ours may hand out anything.
Status PoolMemoryResource::check_place(const Block& memory) {
  if (!is_aligned(memory.address, kPoolGranule))
    return Status::fail(Code::invalid_alignment, "a chunk of the upstream does not begin where it was asked to",
                        kPoolGranule);
  const auto after = chunks_.lower_bound(memory.address);
  const bool overlaps_next = after != chunks_.end() && after->first - memory.address < memory.nbytes;
  const bool overlaps_last =
      after != chunks_.begin() && memory.address - std::prev(after)->first < std::prev(after)->second.memory.nbytes;
  if (overlaps_next || overlaps_last)
    return Status::fail(Code::invalid_argument, "a chunk of the upstream overlaps one that it handed out before",
                        memory.address, memory.nbytes);
  return {};
}

// Whoever made the pool grow gets what it asked for before another thread can help itself.
Status PoolMemoryResource::keep(PoolChunk chunk, const Misses& misses) {
  const std::lock_guard lock(lock_);
  TM_TRY(check_place(chunk.memory));
  OffsetAllocator& space = spaces_[kLargeRoom];
  const std::uint64_t address = chunk.memory.address;
  TM_TRY(space.add_span(address, align_down(chunk.memory.nbytes, kPoolGranule), span_after(chunks_, address),
                        &chunk.span));
  chunks_.emplace(address, chunk);
  const auto undo = [&] {
    chunks_.erase(address);
    space.remove_span(chunk.span);
  };
  // What exists from a point of a stream on is not free for everyone; it is pending on its stream.
  const bool pending = upstream_->is_stream_ordered() && !default_is_inline_;
  Allocation all;
  space.take_span(chunk.span, &all);
  RangeName whole{kLargeRoom, all.node};
  if (!misses.empty() && room_of(misses.front()->request) == kSmallRoom) {
    Status added = add_slab(address, all.size, all.node, &whole);
    if (!added.ok()) {
      free_range({kLargeRoom, all.node});
      undo();
      return added;
    }
  }
  if (hand_out_whole(whole, misses, pending)) {
    ++chunks_added_;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    return {};
  }
  remove_free_slabs();
  undo();
  return out_of_memory(misses.front()->request.nbytes);
}

Status PoolMemoryResource::trim(std::uint64_t keep_bytes, std::uint64_t* released) {
  PoolChunks empty;
  Status reaped;
  {
    Lock lock(lock_);
    reaped = reap_locked(lock);
    empty = take_empty_chunks(keep_bytes);
  }
  TM_TRY(give_back(std::move(empty), released));
  return reaped;
}

// The largest first, so that few calls do; what the pool began with comes last.
PoolChunks PoolMemoryResource::take_empty_chunks(std::uint64_t keep_bytes, bool initial_too) {
  PoolChunks taken;
  if (reserved_ <= keep_bytes) return taken;
  remove_free_slabs();
  std::vector<PoolChunk> idle;
  for (const auto& [address, chunk] : chunks_) {
    if ((initial_too || !chunk.is_initial) && spaces_[kLargeRoom].span_is_free(chunk.span)) idle.push_back(chunk);
  }
  std::ranges::sort(idle, std::greater{},
                    [](const PoolChunk& chunk) { return std::pair(!chunk.is_initial, chunk.memory.nbytes); });
  for (const PoolChunk& chunk : idle) {
    if (reserved_ <= keep_bytes) break;
    reserved_ -= chunk.memory.nbytes;
    spaces_[kLargeRoom].remove_span(chunk.span);
    chunks_.erase(chunk.memory.address);
    taken.push_back(chunk);
  }
  return taken;
}

// A chunk that the upstream does not take back stays ours, to be used and offered again.
Status PoolMemoryResource::give_back(PoolChunks chunks, std::uint64_t* released) {
  Status first_failure;
  *released = 0;
  const TraceInside inside;
  for (const PoolChunk& chunk : chunks) {
    const std::uint64_t nbytes = chunk.memory.nbytes;
    BlockState end{};
    Status given = upstream_->deallocate(chunk.memory, kDefaultStream, &end);
    if (given.ok()) {
      *released += nbytes;
      continue;
    }
    if (first_failure.ok()) first_failure = std::move(given);
    if (upstream_->state_of(chunk.memory) != BlockState::live || !keep(chunk, {}).ok()) continue;
    const std::lock_guard lock(lock_);
    reserved_ += nbytes;
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
  remove_free_slabs();
  PoolUsage usage;
  usage.reserved_bytes = reserved_;
  usage.chunk_count = chunks_.size();
  for (const OffsetAllocator& space : spaces_) {
    usage.total_free += space.total_free();
    usage.largest_free = std::max(usage.largest_free, space.largest_free());
  }
  for (const Pendings& pending : pending_) {
    for (const auto& [stream, ranges] : pending) usage.pending_bytes += ranges.bytes();
  }
  usage.pending_bytes += stats_.retired_bytes;
  return usage;
}

Status PoolMemoryResource::out_of_memory(std::uint64_t requested) {
  const PoolUsage usage = usage_locked();
  return Status::fail(Code::out_of_memory, "no free range of the pool can hold it and it cannot grow", requested,
                      usage.total_free, usage.largest_free);
}

}  // namespace tensormem

#include "resource/arena_memory_resource.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "base/blocking.hpp"
#include "base/wait.hpp"

namespace tensormem {

namespace {

constexpr std::uint32_t kMostArenas = 64;

// Threads are dealt out in the order of their first allocation, so that the first few never share.
std::uint32_t thread_number() {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

std::uint32_t ArenaMemoryResource::default_arena_count() {
  return std::clamp(2 * std::thread::hardware_concurrency(), 4U, kMostArenas);
}

Status ArenaMemoryResource::create(ResourcePtr upstream, std::uint32_t arenas,
                                   std::shared_ptr<ArenaMemoryResource>* out, std::uint64_t pending_timeout_ns) {
  if (arenas == 0 || arenas > kMostArenas) return Status::fail(Code::invalid_argument, "there are 1 to 64 arenas");
  std::shared_ptr<ArenaMemoryResource> made(new ArenaMemoryResource(*upstream, pending_timeout_ns));
  for (std::uint32_t i = 0; i < arenas; ++i) {
    std::shared_ptr<PoolMemoryResource> pool;
    TM_TRY(PoolMemoryResource::create(upstream, {.pending_timeout_ns = 0}, &pool));
    pool->set_name("arena " + std::to_string(i));
    made->ids_.push_back(pool->id());
    made->arenas_.push_back(std::move(pool));
  }
  *out = std::move(made);
  return {};
}

Status ArenaMemoryResource::do_allocate(const AllocRequest& request, Block* block) {
  const std::size_t own = own_arena();
  Status tried = arenas_[own]->allocate(request, block);
  if (tried.ok()) [[likely]]
    return tried;
  const Code code = tried.code();
  if (code != Code::out_of_memory && code != Code::out_of_budget && code != Code::out_of_physical_memory) return tried;
  for (std::size_t step = 1; step < arenas_.size(); ++step) {
    Status other = arenas_[(own + step) % arenas_.size()]->allocate(request, block);
    if (other.ok()) return other;
  }
  bool found = false;
  TM_TRY(wait_for_room(request, block, &found));
  if (found) return {};
  return tried;
}

// As a pool alone does it, over all of them: the room may come free in any.
Status ArenaMemoryResource::wait_for_room(const AllocRequest& request, Block* block, bool* found) {
  if (!driver().stream_is_inline(request.stream)) return {};
  const auto waits = [&](const auto& arena) { return arena->may_come_free(request); };
  const auto takes = [&](const auto& arena) { return arena->take_passed(request, block); };
  if (std::ranges::any_of(arenas_, waits)) {
    Status waited = Wait::of_caller(pending_timeout_ns_).by_asking([&](bool* over) {
      *found = std::ranges::any_of(arenas_, takes);
      *over = *found || std::ranges::none_of(arenas_, waits);
      return Status();
    });
    if (waited.code() != Code::timed_out) TM_TRY(std::move(waited));
  }
  *found = *found || std::ranges::any_of(arenas_, takes);
  return {};
}

Status ArenaMemoryResource::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  PoolMemoryResource* maker = maker_of(block);
  return maker == nullptr ? foreign(block) : maker->deallocate(block, stream, end);
}

Stats ArenaMemoryResource::stats() const {
  Stats sum;
  for (const auto& arena : arenas_) {
    const Stats each = arena->stats();
    for (const StatsField& field : kStatsFields) sum.*field.member += each.*field.member;
  }
  return sum;
}

BlockState ArenaMemoryResource::state_of(const Block& block) const {
  const PoolMemoryResource* maker = maker_of(block);
  return maker == nullptr ? BlockState::freed : maker->state_of(block);
}

Status ArenaMemoryResource::reap_pending() {
  Status first_failure;
  for (const auto& arena : arenas_) {
    Status reaped = arena->reap_pending();
    if (!reaped.ok() && first_failure.ok()) first_failure = std::move(reaped);
  }
  return first_failure;
}

Status ArenaMemoryResource::prepare_block_use(const Block& block, StreamId stream, Access access) {
  PoolMemoryResource* maker = maker_of(block);
  return maker == nullptr ? foreign(block) : maker->prepare_block_use(block, stream, access);
}

Status ArenaMemoryResource::finish_block_use(const Block& block, StreamId stream, Access access) {
  PoolMemoryResource* maker = maker_of(block);
  return maker == nullptr ? foreign(block) : maker->finish_block_use(block, stream, access);
}

PoolUsage ArenaMemoryResource::usage() {
  PoolUsage sum;
  for (const auto& arena : arenas_) {
    const PoolUsage each = arena->usage();
    sum.reserved_bytes += each.reserved_bytes;
    sum.total_free += each.total_free;
    sum.largest_free = std::max(sum.largest_free, each.largest_free);
    sum.pending_bytes += each.pending_bytes;
    sum.chunk_count += each.chunk_count;
  }
  return sum;
}

Status ArenaMemoryResource::trim(std::uint64_t* released) {
  Status first_failure;
  *released = 0;
  for (const auto& arena : arenas_) {
    std::uint64_t each = 0;
    Status trimmed = arena->trim(0, &each);
    *released += each;
    if (!trimmed.ok() && first_failure.ok()) first_failure = std::move(trimmed);
  }
  return first_failure;
}

std::size_t ArenaMemoryResource::own_arena() const { return thread_number() % arenas_.size(); }

PoolMemoryResource* ArenaMemoryResource::maker_of(const Block& block) const {
  const auto found = std::ranges::find(ids_, block.origin);
  return found == ids_.end() ? nullptr : arenas_[static_cast<std::size_t>(found - ids_.begin())].get();
}

Status ArenaMemoryResource::foreign(const Block& block) const {
  return Status::fail(Code::foreign_block, "another resource made this block", block.generation, block.address);
}

}  // namespace tensormem

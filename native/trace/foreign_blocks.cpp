#include "trace/foreign_blocks.hpp"

#include <pthread.h>

#include <atomic>
#include <new>
#include <vector>

#include "trace/record.hpp"
#include "trace/recorder.hpp"

namespace tensormem {

namespace {

std::atomic<std::uint64_t> g_next_generation{1};

// Made when the library is loaded, so that no lock is younger than one it is taken inside.
const bool g_made_early = (ForeignBlocks::instance(), true);

TraceEvent event_of(TraceKind kind, std::uint64_t address, const ForeignBlock& block) noexcept {
  TraceEvent event;
  event.kind = kind;
  event.address = address;
  event.nbytes = block.nbytes;
  event.generation = block.generation;
  event.resource = block.resource;
  event.tag = block.tag;
  event.depth = block.depth;
  return event;
}

}  // namespace

ForeignBlocks::ForeignBlocks() { pthread_atfork(nullptr, nullptr, &after_fork_in_child); }

// Never destroyed: memory is freed until the very end.
ForeignBlocks& ForeignBlocks::instance() {
  static ForeignBlocks* const blocks = [] {
    (void)TraceRecorder::instance();
    return new ForeignBlocks;
  }();
  return *blocks;
}

// What the parent was seen to allocate is not news of this process.
void ForeignBlocks::after_fork_in_child() noexcept {
  ForeignBlocks& self = instance();
  for (Shard& shard : self.shards_) shard.blocks.clear();
  self.ranges_.clear();
}

ForeignBlocks::Shard& ForeignBlocks::shard_of(std::uint64_t address) noexcept {
  return shards_[(address * 0x9E3779B97F4A7C15ULL >> 60) % kShards];
}

ForeignBlock ForeignBlocks::describe(ForeignOwner owner, std::uint64_t nbytes) noexcept {
  const TraceNesting nesting;
  return {.nbytes = nbytes,
          .generation = g_next_generation.fetch_add(1, std::memory_order_relaxed),
          .resource = owner.resource,
          .tag = owner.tag,
          .stack = nesting.depth() == 0 ? trace_stack() : 0,
          .session = TraceRecorder::instance().session(),
          .depth = nesting.depth()};
}

void ForeignBlocks::report_begin(std::uint64_t address, const ForeignBlock& block) noexcept {
  TraceEvent event = event_of(TraceKind::allocate, address, block);
  event.stack = block.stack;
  trace_record(&event);
}

void ForeignBlocks::report_end(std::uint64_t address, const ForeignBlock& block) noexcept {
  if (!trace_is_on() || block.session != TraceRecorder::instance().session()) return;
  constexpr std::uint8_t kFreed = 3;  // as BlockState has it
  TraceEvent event = event_of(TraceKind::deallocate, address, block);
  event.detail = kFreed;
  trace_record(&event);
}

void ForeignBlocks::begin(ForeignOwner owner, std::uint64_t address, std::uint64_t nbytes) noexcept {
  const ForeignBlock block = describe(owner, nbytes);
  try {
    Shard& shard = shard_of(address);
    const std::lock_guard lock(shard.mutex);
    shard.blocks[address] = block;
  } catch (const std::bad_alloc&) {
    return TraceRecorder::instance().count_lost();
  }
  report_begin(address, block);
}

void ForeignBlocks::end(std::uint64_t address) noexcept {
  ForeignBlock block;
  if (forget(address, &block)) report_end(address, block);
}

bool ForeignBlocks::forget(std::uint64_t address, ForeignBlock* block) noexcept {
  Shard& shard = shard_of(address);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.blocks.find(address);
  if (found == shard.blocks.end()) return false;
  *block = found->second;
  shard.blocks.erase(found);
  return true;
}

void ForeignBlocks::remember(std::uint64_t address, const ForeignBlock& block) noexcept {
  try {
    Shard& shard = shard_of(address);
    const std::lock_guard lock(shard.mutex);
    shard.blocks.emplace(address, block);
  } catch (const std::bad_alloc&) {
    TraceRecorder::instance().count_lost();  // its end will not be seen
  }
}

void ForeignBlocks::begin_range(ForeignOwner owner, std::uint64_t address, std::uint64_t nbytes) noexcept {
  end_range(address, nbytes);  // a mapping at a fixed place replaces what was there
  const ForeignBlock block = describe(owner, nbytes);
  try {
    const std::lock_guard lock(ranges_mutex_);
    ranges_[address] = block;
  } catch (const std::bad_alloc&) {
    return TraceRecorder::instance().count_lost();
  }
  report_begin(address, block);
}

void ForeignBlocks::end_range(std::uint64_t address, std::uint64_t nbytes) noexcept {
  struct Piece {
    std::uint64_t address;
    ForeignBlock block;
  };
  std::vector<Piece> ended;
  std::vector<Piece> left;
  const std::uint64_t end = address + nbytes;
  const auto keep = [&](const Piece& whole, std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    ForeignBlock block = whole.block;
    block.nbytes = to - from;
    block.generation = g_next_generation.fetch_add(1, std::memory_order_relaxed);
    ranges_[from] = block;
    left.push_back({from, block});
  };
  try {
    const std::lock_guard lock(ranges_mutex_);
    auto at = ranges_.upper_bound(address);
    if (at != ranges_.begin() && std::prev(at)->first + std::prev(at)->second.nbytes > address) --at;
    while (at != ranges_.end() && at->first < end) {
      ended.push_back({at->first, at->second});
      at = ranges_.erase(at);
    }
    // After the walk: a piece that is left must not be met again.
    for (const Piece& whole : ended) {
      keep(whole, whole.address, address);
      keep(whole, end, whole.address + whole.block.nbytes);
    }
  } catch (const std::bad_alloc&) {
    return TraceRecorder::instance().count_lost();
  }
  for (const Piece& piece : ended) report_end(piece.address, piece.block);
  for (const Piece& piece : left) {
    if (trace_is_on() && piece.block.session == TraceRecorder::instance().session())
      report_begin(piece.address, piece.block);
  }
}

ForeignOwner ForeignBlocks::owner_of_range(std::uint64_t address) noexcept {
  const std::lock_guard lock(ranges_mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return {};
  return {.resource = found->second.resource, .tag = found->second.tag};
}

}  // namespace tensormem

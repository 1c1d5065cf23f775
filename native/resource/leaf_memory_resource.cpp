#include "resource/leaf_memory_resource.hpp"

#include <bit>
#include <optional>

#include "base/blocking.hpp"
#include "base/invariant.hpp"
#include "driver/host/host_driver.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

// From here on, getting or giving back memory takes long enough for other threads to use the time.
constexpr std::uint64_t kSlowBytes = 64 * 1024;
// How many retired blocks an allocation looks at: more than it can add, few enough to cost nothing.
constexpr std::size_t kReapedAtOnce = 4;

BlockUses* uses_of(const BlockEntry& entry) { return static_cast<BlockUses*>(entry.uses); }

}  // namespace

void LeafMemoryResource::finish() {
  TM_WALK(LeafMemoryResource::is_valid());
  // Nobody holds a block any more, or it would hold us; what is left waits for a stream, or was refused and is tried
  // once more.
  for (int round = 0; round < 2 && !retired_.empty(); ++round) {
    std::vector<std::uint64_t> done;
    {
      const BlockingRegion region;
      retired_.wait_and_take(order_, &done);
    }
    (void)free_all(done).ok();
  }
  give_back_orphans();
  table_.for_each([](BlockEntry& entry) { delete uses_of(entry); });
  table_.clear();
}

// A block whose owner dropped it, and which could not be ended then, is still live here though nobody holds it.
void LeafMemoryResource::give_back_orphans() {
  std::vector<BlockEntry> orphans;
  table_.for_each([&](BlockEntry& entry) {
    if (entry.state == BlockState::live) orphans.push_back(entry);
  });
  for (const BlockEntry& orphan : orphans) {
    const BlockingRegion region;
    Uses others;
    if (orphan.uses != nullptr) others = uses_of(orphan)->conflicts(orphan.stream, Access::write);
    const bool idle = !driver().stream_is_valid(orphan.stream) || driver().stream_synchronize(orphan.stream).ok();
    // What is not proven done is kept for ever: a leak, not a crash.
    if (!idle || !order_.synchronize(others).ok() || !give_back(orphan).ok()) continue;
    report_deallocate(id(), orphan.address, orphan.nbytes, orphan.generation, orphan.tag);
  }
}

Status LeafMemoryResource::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  if (any_retired_.load(std::memory_order_relaxed) && &driver() == &host_driver()) [[unlikely]]
    reap_a_few();
  AllocRequest wanted = request;
  wanted.zeroed = request.zeroed && can_zero(request);
  std::uint64_t address = 0;
  TM_TRY(allocate_or_reap(wanted, &address));

  std::unique_lock lock(mutex_);
  BlockEntry entry;
  entry.address = address;
  entry.nbytes = request.nbytes;
  entry.generation = generations_.next();
  entry.stream = request.stream;
  entry.tag = request.tag;
  entry.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(request.alignment));
  entry.state = BlockState::live;
  entry.zeroed = wanted.zeroed;
  if (Status inserted = table_.insert(entry); !inserted.ok()) {
    lock.unlock();
    // An address that is live already belongs to its first owner: giving it back would free their memory.
    if (inserted.code() != Code::foreign_block) TM_TRY(give_back_politely(entry));
    return inserted;
  }
  stats_.on_allocate(request.nbytes);
  *block = {.address = address,
            .nbytes = request.nbytes,
            .generation = entry.generation,
            .stream = request.stream,
            .tag = request.tag,
            .origin = id(),
            .slot = kNoSlot,
            .alignment_log2 = entry.alignment_log2,
            .zeroed = wanted.zeroed};
  return {};
}

Status LeafMemoryResource::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(check_stream(stream));
  bool idle = false;
  TM_TRY(driver().stream_query(stream, &idle));
  Uses others;
  {
    const std::lock_guard lock(mutex_);
    BlockEntry* entry = nullptr;
    TM_TRY(find_live(block, &entry));
    if (entry->uses != nullptr) others = uses_of(*entry)->conflicts(stream, Access::write);
    entry->state = BlockState::retired;  // from here on a second free is caught
    stats_.on_retire(entry->nbytes);
  }
  if (!idle || !others.empty()) {
    if (Status ordered = order_end(stream, &others); !ordered.ok()) {
      revive(block.address);
      return ordered;
    }
    bool passed = false;
    // A query that fails proves nothing: the block waits, and reap_pending will tell.
    if (!order_.are_done(others, &passed).ok() || !passed) {
      const std::lock_guard lock(mutex_);
      retired_.push(block.address, std::move(others));
      any_retired_.store(true, std::memory_order_relaxed);
      *end = BlockState::retired;
      return {};
    }
  }
  Status freed = free_now(block.address);
  const bool waits = !freed.ok() && may_ask_again();  // reap_pending asks, and tells
  *end = waits ? BlockState::retired : BlockState::freed;
  return waits ? Status() : std::move(freed);
}

std::uint64_t LeafMemoryResource::bytes_outstanding() const {
  const std::lock_guard lock(mutex_);
  return stats_.current_bytes;
}

Stats LeafMemoryResource::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

BlockState LeafMemoryResource::state_of(const Block& block) const {
  const std::lock_guard lock(mutex_);
  const BlockEntry* entry = table_.find(block.address);
  return entry != nullptr && entry->generation == block.generation ? entry->state : BlockState::freed;
}

Status LeafMemoryResource::reap_pending() {
  std::vector<std::uint64_t> done;
  Status asked;
  {
    std::unique_lock lock(mutex_);
    asked = retired_.take_done(order_, lock, &done);
    any_retired_.store(!retired_.empty(), std::memory_order_relaxed);
  }
  TM_TRY(free_all(done));
  return asked;
}

// With every allocation, so that what streams have passed does not pile up until memory is short; what fails here is
// told by reap_pending(). Not of a GPU's driver: that may wait for the device, which nobody who queues work expects.
void LeafMemoryResource::reap_a_few() {
  std::vector<std::uint64_t> done;
  {
    std::unique_lock lock(mutex_);
    (void)retired_.take_done(order_, lock, &done, kReapedAtOnce).ok();
    any_retired_.store(!retired_.empty(), std::memory_order_relaxed);
  }
  (void)free_all(done).ok();
}

Status LeafMemoryResource::prepare_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  Uses others;
  {
    const std::lock_guard lock(mutex_);
    BlockEntry* entry = nullptr;
    TM_TRY(find_live(block, &entry));
    if (entry->uses != nullptr) others = uses_of(*entry)->conflicts(stream, access);
  }
  return wait_for(others, stream);
}

Status LeafMemoryResource::finish_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  std::unique_lock lock(mutex_);
  BlockEntry* entry = nullptr;
  TM_TRY(find_live(block, &entry));
  lock.unlock();
  EventRef event;
  TM_TRY(order_.mark(stream, &event));
  lock.lock();
  TM_TRY(find_live(block, &entry));  // another thread may have given it back meanwhile
  if (entry->uses == nullptr) entry->uses = new BlockUses;
  uses_of(*entry)->finished(stream, access, std::move(event));
  return {};
}

bool LeafMemoryResource::is_valid() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t retired = 0;
  table_.for_each([&](const BlockEntry& entry) {
    bytes += entry.nbytes;
    ++blocks;
    if (entry.state == BlockState::retired) ++retired;
  });
  return table_.is_valid() && bytes == stats_.current_bytes && blocks == stats_.current_count &&
         retired == stats_.retired_count && retired_.size() <= retired && retired_.is_valid();
}

Status LeafMemoryResource::take_politely(const AllocRequest& request, std::uint64_t* address) {
  std::optional<BlockingRegion> region;
  if (request.nbytes >= kSlowBytes) region.emplace();
  return take(request, address);
}

Status LeafMemoryResource::give_back_politely(const BlockEntry& entry) {
  std::optional<BlockingRegion> region;
  if (entry.nbytes >= kSlowBytes) region.emplace();
  return give_back(entry);
}

Status LeafMemoryResource::allocate_or_reap(const AllocRequest& request, std::uint64_t* address) {
  Status tried = take_politely(request, address);
  if (tried.code() != Code::out_of_memory) return tried;
  // What cannot be reaped is told by reap_pending() itself; here only the memory counts.
  (void)reap_pending().ok();
  return take_politely(request, address);
}

// On a stream that runs inline this blocks, and the work it waits for may need the caller's lock.
Status LeafMemoryResource::wait_for(const Uses& others, StreamId stream) {
  if (others.empty()) return {};
  const BlockingRegion region;
  return order_.wait_for(others, stream);
}

// The end of a block comes after its other uses and after what its stream was given: the stream waits for the others
// and one event of it stands for all, unless the stream runs inline: then the others themselves are what to wait for.
Status LeafMemoryResource::order_end(StreamId stream, Uses* until) {
  if (driver().stream_is_inline(stream)) return {};
  TM_TRY(order_.wait_for(*until, stream));
  EventRef end;
  TM_TRY(order_.mark(stream, &end));
  until->clear();
  until->push_back({stream, std::move(end)});
  return {};
}

Status LeafMemoryResource::find_live(const Block& block, BlockEntry** entry) {
  TM_TRY(table_.check(block.address, block.generation, block.origin == id()));
  BlockEntry* found = table_.find(block.address);
  if (found->state != BlockState::live)
    return Status::fail(Code::use_after_free, "the block was given back before", block.generation, block.address);
  *entry = found;
  return {};
}

void LeafMemoryResource::revive(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  BlockEntry* entry = table_.find(address);
  TM_ASSERT(entry != nullptr && entry->state == BlockState::retired);
  entry->state = BlockState::live;
  stats_.on_revive(entry->nbytes);
}

// The entry goes before the memory: once the source has the address back, another thread may be handed it.
Status LeafMemoryResource::free_now(std::uint64_t address) {
  BlockEntry entry;
  {
    const std::lock_guard lock(mutex_);
    entry = *table_.find(address);
    TM_ASSERT(entry.state == BlockState::retired);
    table_.erase(address);
    stats_.on_reap(entry.nbytes);
  }
  delete uses_of(entry);
  entry.uses = nullptr;
  Status freed = give_back_politely(entry);
  if (!freed.ok()) keep_charged(entry);
  return freed;
}

Status LeafMemoryResource::free_all(const std::vector<std::uint64_t>& addresses) {
  Status first_failure;
  for (const std::uint64_t address : addresses) {
    Status freed = free_now(address);
    if (!freed.ok() && first_failure.ok()) first_failure = std::move(freed);
  }
  return first_failure;
}

// The source would not take it back: it is not free, so it stays retired and counted, and is tried again if that can do
// no harm.
void LeafMemoryResource::keep_charged(const BlockEntry& entry) {
  const std::lock_guard lock(mutex_);
  BlockEntry kept = entry;
  kept.state = BlockState::retired;
  if (!table_.insert(kept).ok()) return;
  stats_.current_bytes += kept.nbytes;
  stats_.current_count += 1;
  stats_.on_retire(kept.nbytes);
  if (!may_ask_again()) return;
  retired_.push(kept.address, {});
  any_retired_.store(true, std::memory_order_relaxed);
}

}  // namespace tensormem

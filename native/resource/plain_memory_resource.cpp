#include "resource/plain_memory_resource.hpp"

#include <bit>
#include <optional>

#include "base/blocking.hpp"
#include "base/invariant.hpp"

namespace tensormem {

namespace {

// From here on, getting or giving back memory takes long enough for other threads to use the time.
constexpr std::uint64_t kSlowBytes = 64 * 1024;

BlockUses* uses_of(const BlockEntry& entry) { return static_cast<BlockUses*>(entry.uses); }

}  // namespace

PlainMemoryResource::PlainMemoryResource(Driver& driver, std::int32_t device, const AllocationOptions& options)
    : Resource(driver, device), options_(options), order_(driver, device) {}

PlainMemoryResource::~PlainMemoryResource() {
  // Nobody holds a block any more, or it would hold us; what is left is waiting for a stream.
  std::vector<std::uint64_t> done;
  if (!retired_.empty()) {
    const BlockingRegion region;
    retired_.wait_and_take(order_, &done);
  }
  (void)free_all(done).ok();
  table_.for_each([](BlockEntry& entry) { delete uses_of(entry); });
}

Status PlainMemoryResource::allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  std::uint64_t address = 0;
  TM_TRY(allocate_or_reap(request, &address));

  std::unique_lock lock(mutex_);
  BlockEntry entry;
  entry.address = address;
  entry.nbytes = request.nbytes;
  entry.generation = generations_.next();
  entry.stream = request.stream;
  entry.tag = request.tag;
  entry.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(request.alignment));
  entry.state = BlockState::live;
  if (Status inserted = table_.insert(entry); !inserted.ok()) {
    lock.unlock();
    TM_TRY(give_to_driver(entry));
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
            .state = BlockState::live};
  return {};
}

Status PlainMemoryResource::deallocate(const Block& block, StreamId stream, BlockState* end_state) {
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
    stats_.on_retire(block.nbytes);
  }
  *end_state = BlockState::freed;
  if (idle && others.empty()) return free_now(block.address);

  EventRef end;
  Status ordered = wait_for(others, stream);
  if (ordered.ok()) ordered = order_.mark(stream, &end);
  if (!ordered.ok()) {
    revive(block.address);
    return ordered;
  }
  bool passed = false;
  // A query that fails proves nothing: the block waits, and reap_pending will tell.
  if (order_.is_done(end, &passed).ok() && passed) return free_now(block.address);
  const std::lock_guard lock(mutex_);
  retired_.push(block.address, std::move(end));
  *end_state = BlockState::retired;
  return {};
}

std::uint64_t PlainMemoryResource::bytes_outstanding() const {
  const std::lock_guard lock(mutex_);
  return stats_.current_bytes;
}

Stats PlainMemoryResource::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

BlockState PlainMemoryResource::state_of(const Block& block) const {
  const std::lock_guard lock(mutex_);
  const BlockEntry* entry = table_.find(block.address);
  return entry != nullptr && entry->generation == block.generation ? entry->state : BlockState::freed;
}

Status PlainMemoryResource::reap_pending() {
  std::vector<std::uint64_t> done;
  Status asked;
  {
    const std::lock_guard lock(mutex_);
    asked = retired_.take_done(order_, &done);
  }
  TM_TRY(free_all(done));
  return asked;
}

Status PlainMemoryResource::prepare_block_use(const Block& block, StreamId stream, Access access) {
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

Status PlainMemoryResource::finish_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  const std::lock_guard lock(mutex_);
  BlockEntry* entry = nullptr;
  TM_TRY(find_live(block, &entry));
  EventRef event;
  TM_TRY(order_.mark(stream, &event));
  if (entry->uses == nullptr) entry->uses = new BlockUses;
  uses_of(*entry)->finished(stream, access, std::move(event));
  return {};
}

bool PlainMemoryResource::is_valid() const {
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
         retired == stats_.retired_count && retired_.size() <= retired;
}

AllocationOptions PlainMemoryResource::options_for(std::uint64_t alignment) const {
  AllocationOptions options = options_;
  options.alignment = alignment;
  return options;
}

Status PlainMemoryResource::take_from_driver(std::uint64_t nbytes, std::uint64_t alignment, std::uint64_t* address) {
  std::optional<BlockingRegion> region;
  if (nbytes >= kSlowBytes) region.emplace();
  return driver().allocate(device(), nbytes, options_for(alignment), address);
}

Status PlainMemoryResource::give_to_driver(const BlockEntry& entry) {
  std::optional<BlockingRegion> region;
  if (entry.nbytes >= kSlowBytes) region.emplace();
  return driver().deallocate(device(), entry.address, entry.nbytes, options_for(1ULL << entry.alignment_log2));
}

Status PlainMemoryResource::allocate_or_reap(const AllocRequest& request, std::uint64_t* address) {
  Status tried = take_from_driver(request.nbytes, request.alignment, address);
  if (tried.code() != Code::out_of_memory) return tried;
  // What cannot be reaped is told by reap_pending() itself; here only the memory counts.
  (void)reap_pending().ok();
  return take_from_driver(request.nbytes, request.alignment, address);
}

// On a stream that runs inline this blocks, and the work it waits for may need the caller's lock.
Status PlainMemoryResource::wait_for(const Uses& others, StreamId stream) {
  if (others.empty()) return {};
  const BlockingRegion region;
  return order_.wait_for(others, stream);
}

Status PlainMemoryResource::find_live(const Block& block, BlockEntry** entry) {
  TM_TRY(table_.check(block.address, block.generation, block.origin == id()));
  BlockEntry* found = table_.find(block.address);
  if (found->state != BlockState::live)
    return Status::fail(Code::use_after_free, "the block was given back before", block.generation, block.address);
  *entry = found;
  return {};
}

void PlainMemoryResource::revive(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  BlockEntry* entry = table_.find(address);
  TM_ASSERT(entry != nullptr && entry->state == BlockState::retired);
  entry->state = BlockState::live;
  stats_.retired_bytes -= entry->nbytes;
  stats_.retired_count -= 1;
}

// The entry goes before the memory: once the driver has the address back, another thread may be handed it.
Status PlainMemoryResource::free_now(std::uint64_t address) {
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
  Status freed = give_to_driver(entry);
  if (!freed.ok()) keep_charged(entry);
  return freed;
}

Status PlainMemoryResource::free_all(const std::vector<std::uint64_t>& addresses) {
  Status first_failure;
  for (const std::uint64_t address : addresses) {
    Status freed = free_now(address);
    if (!freed.ok() && first_failure.ok()) first_failure = std::move(freed);
  }
  return first_failure;
}

// The driver would not take it back: it is not free, so it stays counted, and nobody gets it again.
void PlainMemoryResource::keep_charged(const BlockEntry& entry) {
  const std::lock_guard lock(mutex_);
  BlockEntry kept = entry;
  kept.state = BlockState::quarantined;
  if (!table_.insert(kept).ok()) return;
  stats_.current_bytes += kept.nbytes;
  stats_.current_count += 1;
}

}  // namespace tensormem

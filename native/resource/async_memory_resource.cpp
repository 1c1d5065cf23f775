#include "resource/async_memory_resource.hpp"

#include <bit>

#include "base/blocking.hpp"
#include "base/invariant.hpp"

namespace tensormem {

namespace {

BlockUses* uses_of(const BlockEntry& entry) { return static_cast<BlockUses*>(entry.uses); }

}  // namespace

Status AsyncMemoryResource::create(Driver& driver, std::int32_t device, std::uint64_t keep_bytes,
                                   std::shared_ptr<AsyncMemoryResource>* out) {
  AsyncPool pool = kNoPool;
  TM_TRY(driver.async_pool_create(device, keep_bytes, &pool));
  out->reset(new AsyncMemoryResource(driver, device, pool));
  return {};
}

// Nobody holds a block any more, or it would hold us. One that is still here was dropped and could not be given back
// then: it is tried once more, behind the uses that are known of.
AsyncMemoryResource::~AsyncMemoryResource() {
  TM_WALK(is_valid());
  table_.for_each([this](BlockEntry& entry) {
    const StreamId stream = driver().stream_is_valid(entry.stream) ? entry.stream : kDefaultStream;
    const auto raised = bases_.find(entry.address);
    const std::uint64_t base = raised == bases_.end() ? entry.address : raised->second;
    Uses others;
    if (entry.uses != nullptr) others = uses_of(entry)->conflicts(stream, Access::write);
    if (order_.wait_for(others, stream).ok())
      (void)driver().deallocate_async(device(), base, entry.nbytes, stream).ok();
    delete uses_of(entry);
  });
  table_.clear();
  // Memory that is still on its way back keeps the driver's pool until it is there. A refusal is tried once more.
  if (!driver().async_pool_destroy(pool_).ok()) (void)driver().async_pool_destroy(pool_).ok();
}

Status AsyncMemoryResource::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  const std::uint64_t extra = request.alignment > kNaturalAlignment ? request.alignment - kNaturalAlignment : 0;
  std::uint64_t base = 0;
  Status taken = driver().allocate_async(device(), pool_, request.nbytes + extra, request.stream, &base);
  if (taken.code() == Code::out_of_memory) taken.set_fact(0, request.nbytes);
  TM_TRY(std::move(taken));

  BlockEntry entry;
  entry.address = align_up(base, request.alignment);
  entry.nbytes = request.nbytes;
  entry.stream = request.stream;
  entry.tag = request.tag;
  entry.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(request.alignment));
  entry.state = BlockState::live;
  Status inserted;
  {
    const std::lock_guard lock(lock_);
    entry.generation = generations_.next();
    inserted = table_.insert(entry);
    if (inserted.ok()) {
      if (entry.address != base) bases_[entry.address] = base;
      stats_.on_allocate(request.nbytes);
    }
  }
  if (!inserted.ok()) {
    (void)driver().deallocate_async(device(), base, request.nbytes + extra, request.stream).ok();
    return inserted;
  }
  *block = {.address = entry.address,
            .nbytes = request.nbytes,
            .generation = entry.generation,
            .stream = request.stream,
            .tag = request.tag,
            .origin = id(),
            .slot = kNoSlot,
            .alignment_log2 = entry.alignment_log2};
  return {};
}

Status AsyncMemoryResource::find_live(const Block& block, BlockEntry** entry) {
  TM_TRY(table_.check(block.address, block.generation, block.origin == id()));
  *entry = table_.find(block.address);
  return {};
}

// The memory begins to exist on its stream: to the others that is its first write. One event behind the stream stands
// for it, made when another stream comes along; a stream that is gone has done its work.
Status AsyncMemoryResource::find_begun(std::unique_lock<Spinlock>& lock, const Block& block, StreamId stream,
                                       BlockEntry** entry) {
  TM_TRY(find_live(block, entry));
  if ((*entry)->uses != nullptr || (*entry)->stream == stream) return {};
  const StreamId own = (*entry)->stream;
  lock.unlock();
  auto uses = std::make_unique<BlockUses>();
  EventRef begun;
  Status marked = order_.mark(own, &begun);
  if (!marked.ok() && driver().stream_is_valid(own)) return marked;
  if (marked.ok()) uses->finished(own, Access::write, std::move(begun));
  lock.lock();
  TM_TRY(find_live(block, entry));  // another thread may have given it back meanwhile
  if ((*entry)->uses == nullptr) (*entry)->uses = uses.release();
  return {};
}

// The entry goes before the memory: once the driver has the address back, another thread may be handed it.
Status AsyncMemoryResource::take_out(const Block& block, StreamId stream, BlockEntry* entry, std::uint64_t* base,
                                     Uses* others) {
  std::unique_lock lock(lock_);
  BlockEntry* found = nullptr;
  TM_TRY(find_begun(lock, block, stream, &found));
  *entry = *found;
  if (entry->uses != nullptr) *others = uses_of(*entry)->conflicts(stream, Access::write);
  *base = block.address;
  if (const auto raised = bases_.empty() ? bases_.end() : bases_.find(block.address); raised != bases_.end()) {
    *base = raised->second;
    bases_.erase(raised);
  }
  table_.erase(block.address);
  stats_.on_free(entry->nbytes);
  return {};
}

void AsyncMemoryResource::put_back(const BlockEntry& entry, std::uint64_t base) {
  const std::lock_guard lock(lock_);
  if (!table_.insert(entry).ok()) return;
  if (base != entry.address) bases_[entry.address] = base;
  stats_.current_bytes += entry.nbytes;
  stats_.current_count += 1;
}

Status AsyncMemoryResource::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(check_stream(stream));
  BlockEntry entry;
  std::uint64_t base = 0;
  Uses others;
  TM_TRY(take_out(block, stream, &entry, &base, &others));
  Status done = order_.wait_for(others, stream);
  if (done.ok()) done = driver().deallocate_async(device(), base, entry.nbytes, stream);
  if (!done.ok()) {
    put_back(entry, base);
    return done;
  }
  delete uses_of(entry);
  *end = BlockState::freed;
  return {};
}

std::uint64_t AsyncMemoryResource::bytes_outstanding() const {
  const std::lock_guard lock(lock_);
  return stats_.current_bytes;
}

Stats AsyncMemoryResource::stats() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

BlockState AsyncMemoryResource::state_of(const Block& block) const {
  const std::lock_guard lock(lock_);
  const BlockEntry* entry = table_.find(block.address);
  return entry != nullptr && entry->generation == block.generation ? entry->state : BlockState::freed;
}

Status AsyncMemoryResource::prepare_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  Uses others;
  {
    std::unique_lock lock(lock_);
    BlockEntry* entry = nullptr;
    TM_TRY(find_begun(lock, block, stream, &entry));
    if (entry->uses != nullptr) others = uses_of(*entry)->conflicts(stream, access);
  }
  if (others.empty()) return {};
  const BlockingRegion region;
  return order_.wait_for(others, stream);
}

Status AsyncMemoryResource::finish_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  EventRef event;
  TM_TRY(order_.mark(stream, &event));
  std::unique_lock lock(lock_);
  BlockEntry* entry = nullptr;
  TM_TRY(find_begun(lock, block, stream, &entry));
  if (entry->uses == nullptr) {
    entry->uses = new BlockUses;
    access = Access::write;  // it stands for the block's being ready, too
  }
  uses_of(*entry)->finished(stream, access, std::move(event));
  return {};
}

Status AsyncMemoryResource::trim(std::uint64_t keep_bytes) {
  const BlockingRegion region;
  return driver().trim_async(device(), pool_, keep_bytes);
}

Status AsyncMemoryResource::keep(std::uint64_t keep_bytes) { return driver().async_pool_keep(pool_, keep_bytes); }

bool AsyncMemoryResource::is_valid() const {
  const std::lock_guard lock(lock_);
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  table_.for_each([&](const BlockEntry& entry) {
    bytes += entry.nbytes;
    ++blocks;
  });
  return table_.is_valid() && bytes == stats_.current_bytes && blocks == stats_.current_count;
}

}  // namespace tensormem

// Blocks, references and streams. Places that callers name, growing, compaction and suspension have files of their own
// beside this one.
#include "pool/virtual_memory_pool.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/blocking.hpp"
#include "base/ending.hpp"
#include "base/invariant.hpp"
#include "base/used_range.hpp"
#include "pool/pool_work.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kSmallestPage = 64ULL << 10;

}  // namespace

VirtualMemoryPool::VirtualMemoryPool(Driver& driver, const VirtualPoolOptions& options, BudgetPtr budget,
                                     std::unique_ptr<ElasticPages> pages)
    : driver_(driver),
      device_(options.device),
      budget_(std::move(budget)),
      order_(driver, options.device),
      pages_(std::move(pages)),
      extents_(capacity()),
      references_(pages_->page_count()),
      waiting_(pages_->page_count()),
      live_(pages_->page_count()) {}

Status VirtualMemoryPool::open(Driver& driver, const VirtualPoolOptions& options, BudgetPtr budget,
                               std::shared_ptr<VirtualMemoryPool>* pool) noexcept try {
  Granularity granularity;
  TM_TRY(driver.granularity(options.device, &granularity));
  const std::uint64_t least = std::max(kSmallestPage, granularity.minimum);
  if (!is_power_of_two(options.page_bytes) || options.page_bytes < least) {
    return Status::fail(Code::invalid_page_size, "", options.page_bytes, least);
  }
  if (options.capacity == 0 || options.capacity > kNoOverflowLimit / 2) {
    return Status::fail(Code::invalid_size, "the capacity of a pool", options.capacity);
  }
  const std::uint64_t count = (options.capacity + options.page_bytes - 1) / options.page_bytes;
  std::unique_ptr<ElasticPages> pages;
  TM_TRY(ElasticPages::open(driver, options.device, options.page_bytes, count, options.cache, budget, &pages));
  rename_reporter(pages->id(), "VirtualMemoryPool");
  std::shared_ptr<VirtualMemoryPool> made(new VirtualMemoryPool(driver, options, std::move(budget), std::move(pages)));
  made->budget_->enlist(*made, &made->membership_);
  *pool = std::move(made);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(VirtualMemoryPool));
}

VirtualMemoryPool::~VirtualMemoryPool() {
  TM_WALK(is_valid());
  membership_.end();
  // Work on a stream may still use what was given back; what cannot be waited for is unmapped all the same by the
  // caller's own doing, but for work that outlives the process.
  struct Nowhere {
    void push_back(const Retired&) noexcept { ++count; }
    std::size_t count = 0;
  } unmapped_below;
  const std::size_t retired = retired_.size();
  const BlockingRegion waiting;
  retired_.wait_and_take(order_, &unmapped_below);
  bool in_use = unmapped_below.count != retired;
  for (const auto& [offset, block] : blocks_) in_use = !order_.synchronize(block.uses).ok() || in_use;
  for (const auto& [offset, block] : blocks_) {
    report_deallocate(pages_->id(), base() + offset, block.size, block.id, block.tag);
  }
  if (in_use && is_ending()) (void)pages_.release();
}

Status VirtualMemoryPool::wait_before_end(const Wait& wait) noexcept try {
  Uses until;
  {
    const std::lock_guard lock(mutex_);
    retired_.append_awaited(&until);
    for (const auto& [offset, block] : blocks_) until.insert(until.end(), block.uses.begin(), block.uses.end());
  }
  return order_.wait_before_end(until, wait);
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to list what a pool waits for", sizeof(Use));
}

// --- Pages ---------------------------------------------------------------------------------------------------------

VirtualMemoryPool::PageSpan VirtualMemoryPool::span_of(std::uint64_t offset, std::uint64_t size) const noexcept {
  const std::uint64_t first = offset / page_bytes();
  return {first, (offset + size + page_bytes() - 1) / page_bytes() - first};
}

Status VirtualMemoryPool::check_place(std::uint64_t offset, std::uint64_t size, PageSpan* span) const noexcept {
  if (size == 0) return Status::fail(Code::invalid_size, "the range is empty", size);
  if (!range_within(offset, size, capacity())) {
    return Status::fail(Code::invalid_offset, "it ends outside the pool", offset, size, capacity());
  }
  *span = span_of(offset, size);
  return {};
}

VirtualMemoryPool::PageSpan VirtualMemoryPool::missing_in(const PageSpan& span) const noexcept {
  PageSpan missing = span;
  while (missing.count != 0 && references_[missing.first] != 0) {
    ++missing.first;
    --missing.count;
  }
  while (missing.count != 0 && references_[missing.end() - 1] != 0) --missing.count;
  TM_EXPECT(pages_->mapped().none_set(missing.first, missing.count));
  return missing;
}

Status VirtualMemoryPool::map_missing(const PageSpan& missing, Work& work) {
  if (missing.count == 0) return {};
  if (missing.count > work.available()) return Status::fail(Code::internal_error, "a call of a pool lacks pages");
  TM_TRY(pages_->map(missing.first, work.pages(), missing.count));
  work.used(missing.count);
  peak_physical_bytes_ = std::max(peak_physical_bytes_, physical_bytes());
  return {};
}

void VirtualMemoryPool::add_references(const PageSpan& span) noexcept {
  for (std::uint64_t page = span.first; page < span.end(); ++page) ++references_[page];
  live_.set(span.first, span.count);
}

void VirtualMemoryPool::remove_references(const PageSpan& span, bool retired) noexcept {
  for (std::uint64_t page = span.first; page < span.end(); ++page) {
    if (retired) --waiting_[page];
    if (--references_[page] == waiting_[page]) live_.clear(page);
  }
}

Status VirtualMemoryPool::drop_references(const PageSpan& span, Work& work, bool retired) {
  PageSpan last = span;
  while (last.count != 0 && references_[last.first] > 1) {
    ++last.first;
    --last.count;
  }
  while (last.count != 0 && references_[last.end() - 1] > 1) --last.count;
  if (last.count != 0) TM_TRY(pages_->unmap(last.first, last.count, &work.loose()));
  remove_references(span, retired);
  return {};
}

// --- Books ---------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::find_block(PoolBlockId id, Blocks::iterator* at) noexcept {
  const auto found = offsets_.find(id);
  if (found == offsets_.end()) return Status::fail(Code::use_after_free, "the block was given back before", id, 0);
  *at = blocks_.find(found->second);
  return {};
}

VirtualMemoryPool::Blocks::iterator VirtualMemoryPool::note(PoolBlock block) {
  const std::uint64_t offset = block.offset;
  const PoolBlockId id = block.id;
  const std::uint64_t size = block.size;
  const auto at = blocks_.emplace(offset, std::move(block)).first;
  try {
    offsets_.emplace(id, offset);
  } catch (...) {
    blocks_.erase(at);
    throw;
  }
  live_bytes_ += size;
  report_allocate(pages_->id(), base() + offset, size, id, at->second.tag);
  return at;
}

void VirtualMemoryPool::forget(Blocks::iterator at) noexcept {
  live_bytes_ -= at->second.size;
  report_deallocate(pages_->id(), base() + at->second.offset, at->second.size, at->second.id, at->second.tag);
  if (at->second.suspended) suspended_bytes_ -= at->second.size;
  offsets_.erase(at->second.id);
  blocks_.erase(at);
}

// --- Places found here ---------------------------------------------------------------------------------------------

Status VirtualMemoryPool::allocate(std::uint64_t size, std::uint64_t alignment, bool movable, TagId tag,
                                   PoolBlockId* id) noexcept {
  if (size == 0 || size > capacity()) {
    return Status::fail(Code::invalid_size, size == 0 ? "no bytes asked for" : "larger than the pool", size);
  }
  if (!is_power_of_two(alignment) || alignment > page_bytes()) {
    return Status::fail(Code::invalid_alignment, "a power of two of at most a page", alignment);
  }
  const std::uint64_t taken = align_up(size, kGranule);
  const std::uint64_t boundary = size >= page_bytes() ? page_bytes() : std::max(alignment, kGranule);
  return with_pages([&](Work& work, PageSpan* missing) -> Status {
    std::uint64_t offset = 0;
    if (!extents_.take(taken, boundary, &offset)) {
      return Status::fail(Code::out_of_virtual_memory, "no free run of addresses is that long", size);
    }
    const PageSpan needed = missing_in(span_of(offset, size));
    if (needed.count > work.available()) {
      extents_.give_back(offset, taken);
      *missing = needed;
      return {};
    }
    PoolBlock block;
    block.id = next_id_++;
    block.offset = offset;
    block.size = size;
    block.extent = taken;
    block.alignment = std::max(alignment, kGranule);
    block.tag = tag;
    block.movable = movable;
    Blocks::iterator at;
    try {
      at = note(block);
    } catch (...) {
      extents_.give_back(offset, taken);
      throw;
    }
    Status status = map_missing(needed, work);
    if (!status.ok()) {
      forget(at);
      extents_.give_back(offset, taken);
      return status;
    }
    add_references(span_of(offset, size));
    *id = block.id;
    return {};
  });
}

// Whether nobody keeps the block where it is, but for `own_holds` of the caller's, nor was given its address as a
// number.
Status VirtualMemoryPool::check_unheld(const PoolBlock& block, std::uint32_t own_holds) const noexcept {
  const std::uint64_t address = base() + block.offset;
  if (block.holds != own_holds) return Status::fail(Code::still_held, "", address, block.holds);
  if (is_used(address, block.size))
    return Status::fail(Code::still_held, "a call was given an address in it and uses it", address, 1);
  return {};
}

Status VirtualMemoryPool::deallocate(PoolBlockId id, StreamId stream) noexcept try {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  (void)reap_locked(work).ok();
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  TM_TRY(check_unheld(at->second, 0));
  Uses until;
  TM_TRY(pending_uses(at->second.uses, stream, &until));
  TM_TRY(end_range(at->second, until, work));
  forget(at);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(PoolBlock));
}

void VirtualMemoryPool::drop(PoolBlockId id) noexcept {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  (void)reap_locked(work).ok();
  Blocks::iterator at;
  if (!find_block(id, &at).ok()) return;
  at->second.is_dropped = true;
  if (at->second.holds == 0) end_dropped(at, work);
}

// Nobody is left to be told: what the driver refuses now is tried again with the retired ones.
void VirtualMemoryPool::end_dropped(Blocks::iterator at, Work& work) noexcept try {
  Uses until;
  if (!pending_uses(at->second.uses, kDefaultStream, &until).ok()) until = at->second.uses;
  if (!end_range(at->second, until, work).ok()) retire(at->second, until);
  forget(at);
} catch (const std::bad_alloc&) {
  // It stays until the pool is closed.
}

void VirtualMemoryPool::release_hold(Blocks::iterator at, Work& work) noexcept {
  at->second.holds -= 1;
  if (at->second.holds == 0 && at->second.is_dropped) end_dropped(at, work);
}

Status VirtualMemoryPool::find(PoolBlockId id, PoolBlock* block) const noexcept try {
  const std::lock_guard lock(mutex_);
  const auto found = offsets_.find(id);
  if (found == offsets_.end()) return Status::fail(Code::use_after_free, "the block was given back before", id, 0);
  *block = blocks_.find(found->second)->second;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to look at a block", sizeof(PoolBlock));
}

Status VirtualMemoryPool::hold(PoolBlockId id, std::uint64_t* offset) noexcept {
  const std::lock_guard lock(mutex_);
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  at->second.holds += 1;
  *offset = at->first;
  return {};
}

Status VirtualMemoryPool::let_go(PoolBlockId id) noexcept {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  if (at->second.holds == 0) return Status::fail(Code::invalid_argument, "the block is not held");
  release_hold(at, work);
  return {};
}

// --- Streams -------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::note_use(PoolBlock& block, StreamId stream) {
  EventRef event;
  TM_TRY(order_.mark(stream, &event));
  for (Use& use : block.uses) {
    if (use.stream != stream) continue;
    use.event = std::move(event);
    return {};
  }
  block.uses.push_back({stream, std::move(event)});
  return {};
}

Status VirtualMemoryPool::record_use(PoolBlockId id, StreamId stream) noexcept try {
  const std::lock_guard lock(mutex_);
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  return note_use(at->second, stream);
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note a use", sizeof(Use));
}

Status VirtualMemoryPool::pending_uses(const Uses& uses, StreamId stream, Uses* until) {
  if (!driver_.stream_is_inline(stream)) {
    bool idle = false;
    TM_TRY(driver_.stream_query(stream, &idle));
    EventRef end;
    if (!idle) TM_TRY(order_.mark(stream, &end));
    if (!idle) until->push_back({stream, std::move(end)});
  }
  for (const Use& use : uses) {
    bool passed = false;
    // A query that fails proves nothing: the memory waits.
    if (!order_.are_done({use}, &passed).ok() || !passed) until->push_back(use);
  }
  return {};
}

// The block is no more. Its pages and addresses are free, or will be when the streams have passed.
Status VirtualMemoryPool::end_range(const PoolBlock& block, const Uses& until, Work& work) {
  if (block.suspended) {
    extents_.give_back(block.offset, block.extent);
    return {};
  }
  if (until.empty()) {
    TM_TRY(drop_references(span_of(block.offset, block.size), work));
    extents_.give_back(block.offset, block.extent);
    return {};
  }
  retire(block, until);
  return {};
}

void VirtualMemoryPool::retire(const PoolBlock& block, const Uses& until) {
  retired_.push({block.offset, block.size, block.extent}, until);
  retired_bytes_ += block.size;
  const PageSpan span = span_of(block.offset, block.size);
  for (std::uint64_t page = span.first; page < span.end(); ++page) {
    if (++waiting_[page] == references_[page]) live_.clear(page);
  }
}

Status VirtualMemoryPool::reap_locked(Work& work) noexcept try {
  if (retired_.empty()) return {};
  std::vector<Retired> done;
  Status status = retired_.take_done(order_, &done);
  for (const Retired& range : done) {
    Status freed = drop_references(span_of(range.offset, range.size), work, true);
    if (!freed.ok()) {
      retired_.push(range, {});  // the driver refused: once more next time
      if (status.ok()) status = std::move(freed);
      continue;
    }
    retired_bytes_ -= range.size;
    extents_.give_back(range.offset, range.extent);
  }
  return status;
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to look at retired pages", sizeof(Retired));
}

Status VirtualMemoryPool::reap_pending() noexcept {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  return reap_locked(work);
}

std::uint64_t VirtualMemoryPool::release_idle(std::uint64_t wanted) noexcept {
  (void)reap_pending().ok();
  return cache().release(wanted);
}

}  // namespace tensormem

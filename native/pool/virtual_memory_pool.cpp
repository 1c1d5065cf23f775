// Places, references and streams. Growing, compaction and suspension have files of their own beside this one.
#include "pool/virtual_memory_pool.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "pool/pool_work.hpp"

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
      references_(pages_->page_count()) {}

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
  pool->reset(new VirtualMemoryPool(driver, options, std::move(budget), std::move(pages)));
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(VirtualMemoryPool));
}

VirtualMemoryPool::~VirtualMemoryPool() {
  // Work on a stream may still use what was given back; what cannot be waited for is unmapped all the same by the
  // caller's own doing.
  Uses until;
  retired_.append_awaited(&until);
  for (const auto& [offset, block] : blocks_) until.insert(until.end(), block.uses.begin(), block.uses.end());
  for (const Use& use : until) (void)order_.synchronize({use}).ok();
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
}

// Pages that nothing else lies in are unmapped; on failure nothing has changed.
Status VirtualMemoryPool::drop_references(const PageSpan& span, Work& work) {
  PageSpan last = span;
  while (last.count != 0 && references_[last.first] > 1) {
    ++last.first;
    --last.count;
  }
  while (last.count != 0 && references_[last.end() - 1] > 1) --last.count;
  if (last.count != 0) TM_TRY(pages_->unmap(last.first, last.count, &work.loose()));
  for (std::uint64_t page = span.first; page < span.end(); ++page) --references_[page];
  return {};
}

// --- Books ---------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::find_block(PoolBlockId id, Blocks::iterator* at) noexcept {
  const auto found = offsets_.find(id);
  if (found == offsets_.end()) return Status::fail(Code::use_after_free, "the block was given back before", id, 0);
  *at = blocks_.find(found->second);
  return {};
}

void VirtualMemoryPool::note(PoolBlock block) {
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
}

void VirtualMemoryPool::forget(Blocks::iterator at) noexcept {
  live_bytes_ -= at->second.size;
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
    Status status;
    if (needed.count > work.available()) {
      *missing = needed;
    } else {
      status = map_missing(needed, work);
    }
    if (!status.ok() || missing->count != 0) {
      extents_.give_back(offset, taken);
      return status;
    }
    PoolBlock block;
    block.id = next_id_++;
    block.offset = offset;
    block.size = size;
    block.extent = taken;
    block.alignment = boundary;
    block.tag = tag;
    block.movable = movable;
    note(block);
    add_references(span_of(offset, size));
    *id = block.id;
    return {};
  });
}

Status VirtualMemoryPool::deallocate(PoolBlockId id, StreamId stream) noexcept try {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  (void)reap_locked(work).ok();
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  if (at->second.holds != 0) return Status::fail(Code::still_held, "", base() + at->first, at->second.holds);
  Uses until;
  TM_TRY(pending_uses(at->second.uses, stream, &until));
  TM_TRY(end_range(at->second, until, work));
  forget(at);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(PoolBlock));
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
  const std::lock_guard lock(mutex_);
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  if (at->second.holds == 0) return Status::fail(Code::invalid_argument, "the block is not held");
  at->second.holds -= 1;
  return {};
}

// --- Places named by the caller ------------------------------------------------------------------------------------

Status VirtualMemoryPool::allocate_at(std::uint64_t offset, std::uint64_t size, TagId tag) noexcept {
  PageSpan span;
  TM_TRY(check_place(offset, size, &span));
  const std::uint64_t start = span.first * page_bytes();
  const std::uint64_t nbytes = span.count * page_bytes();
  return with_pages([&](Work& work, PageSpan* missing) -> Status {
    if (!extents_.is_free(start, nbytes)) {
      for (std::uint64_t page = span.first; page < span.end(); ++page) {
        if (extents_.is_free(page * page_bytes(), page_bytes())) continue;
        return Status::fail(Code::already_mapped, "", page * page_bytes(), page_bytes());
      }
    }
    if (span.count > work.available()) {
      *missing = span;
      return {};
    }
    (void)extents_.take_at(start, nbytes);
    PoolBlock block;
    block.id = next_id_++;
    block.offset = start;
    block.size = block.extent = nbytes;
    block.tag = tag;
    block.is_named = true;
    Status status = map_missing(span, work);
    if (!status.ok()) {
      extents_.give_back(start, nbytes);
      return status;
    }
    note(block);
    add_references(span);
    return {};
  });
}

// Every page of the span belongs to places that callers named.
Status VirtualMemoryPool::check_named(const PageSpan& span) const noexcept {
  std::uint64_t covered = span.first * page_bytes();
  const std::uint64_t end = span.end() * page_bytes();
  auto at = blocks_.upper_bound(covered);
  if (at != blocks_.begin()) --at;
  for (; at != blocks_.end() && covered < end && at->first <= covered; ++at) {
    if (at->second.is_named) covered = std::max(covered, at->first + at->second.size);
  }
  if (covered >= end) return {};
  return Status::fail(Code::not_mapped, "", covered, page_bytes());
}

// Make a named place begin at `offset` if one covers it.
void VirtualMemoryPool::split_named(std::uint64_t offset) {
  auto at = blocks_.upper_bound(offset);
  if (at == blocks_.begin()) return;
  --at;
  const std::uint64_t into = offset - at->first;
  if (!at->second.is_named || into == 0 || into >= at->second.size) return;
  PoolBlock upper = at->second;
  upper.id = next_id_++;
  upper.offset = offset;
  upper.size = upper.extent = at->second.size - into;
  note(upper);
  live_bytes_ -= upper.size;  // counted already
  at->second.size = at->second.extent = into;
}

Status VirtualMemoryPool::deallocate_at(std::uint64_t offset, std::uint64_t size, StreamId stream) noexcept try {
  PageSpan span;
  TM_TRY(check_place(offset, size, &span));
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  (void)reap_locked(work).ok();
  TM_TRY(check_named(span));
  const std::uint64_t end = span.end() * page_bytes();
  split_named(span.first * page_bytes());
  split_named(end);
  Uses uses;
  for (auto at = blocks_.find(span.first * page_bytes()); at != blocks_.end() && at->first < end; ++at) {
    uses.insert(uses.end(), at->second.uses.begin(), at->second.uses.end());
  }
  Uses until;
  TM_TRY(pending_uses(uses, stream, &until));
  // One run of pages, so that it is one call; what is suspended has no pages and ends a run.
  bool is_first = true;
  for (auto at = blocks_.find(span.first * page_bytes()); at != blocks_.end() && at->first < end;) {
    PoolBlock run = at->second;
    auto next = std::next(at);
    for (; next != blocks_.end() && next->first < end && next->second.suspended == run.suspended; ++next) {
      run.size += next->second.size;
    }
    run.extent = run.size;
    Status ended = end_range(run, until, work);
    if (!ended.ok() && is_first) return ended;
    if (!ended.ok())
      retired_.push({run.offset, run.size, run.extent}, {});  // it is gone for the caller; once more later
    if (!ended.ok()) retired_bytes_ += run.size;
    while (at != next) forget(at++);
    is_first = false;
  }
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(PoolBlock));
}

bool VirtualMemoryPool::is_mapped(std::uint64_t offset, std::uint64_t size) const noexcept {
  PageSpan span;
  if (size == 0 || !check_place(offset, size, &span).ok()) return false;
  const std::lock_guard lock(mutex_);
  if (retired_.empty()) return pages_->mapped().all_set(span.first, span.count);
  bool is_live = pages_->mapped().all_set(span.first, span.count);
  retired_.for_each([&](const Retired& range) {
    const PageSpan gone = span_of(range.offset, range.size);
    for (std::uint64_t page = std::max(gone.first, span.first); page < std::min(gone.end(), span.end()); ++page) {
      if (references_[page] == 1) is_live = false;  // mapped for streams only
    }
  });
  return is_live;
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

Status VirtualMemoryPool::record_use_at(std::uint64_t offset, std::uint64_t size, StreamId stream) noexcept try {
  PageSpan span;
  TM_TRY(check_place(offset, size, &span));
  const std::lock_guard lock(mutex_);
  TM_TRY(check_named(span));
  auto at = std::prev(blocks_.upper_bound(span.first * page_bytes()));
  for (; at != blocks_.end() && at->first < span.end() * page_bytes(); ++at) TM_TRY(note_use(at->second, stream));
  return {};
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
  retired_.push({block.offset, block.size, block.extent}, until);
  retired_bytes_ += block.size;
  return {};
}

Status VirtualMemoryPool::reap_locked(Work& work) noexcept try {
  if (retired_.empty()) return {};
  std::vector<Retired> done;
  Status status = retired_.take_done(order_, &done);
  for (const Retired& range : done) {
    Status freed = drop_references(span_of(range.offset, range.size), work);
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

// --- Looking -------------------------------------------------------------------------------------------------------

VirtualPoolStats VirtualMemoryPool::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  const PageCache& cache = pages_->cache();
  VirtualPoolStats stats;
  stats.capacity = capacity();
  stats.page_bytes = page_bytes();
  stats.mapped_pages = pages_->mapped().count();
  stats.cached_pages = cache.cached_pages();
  stats.physical_bytes = physical_bytes();
  stats.peak_physical_bytes = std::max(peak_physical_bytes_, stats.physical_bytes);
  stats.live_bytes = live_bytes_ - suspended_bytes_;
  stats.live_blocks = blocks_.size();
  stats.retired_bytes = retired_bytes_;
  stats.suspended_bytes = suspended_bytes_;
  stats.total_free = extents_.total_free();
  stats.largest_free = extents_.largest_free();
  stats.created_pages = cache.created_pages();
  stats.recycled_pages = cache.recycled_pages();
  return stats;
}

bool VirtualMemoryPool::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t taken = 0;
  std::uint64_t live = 0;
  std::uint64_t before = 0;
  std::uint64_t references = 0;
  for (const auto& [offset, block] : blocks_) {
    if (offset != block.offset || offset < before || block.size == 0 || block.extent < block.size) return false;
    const auto named = offsets_.find(block.id);
    if (named == offsets_.end() || named->second != offset) return false;
    before = offset + block.extent;
    taken += block.extent;
    live += block.size;
    if (!block.suspended) references += span_of(offset, block.size).count;
  }
  retired_.for_each([&](const Retired& range) {
    taken += range.extent;
    references += span_of(range.offset, range.size).count;
  });
  std::uint64_t counted = 0;
  for (std::uint64_t page = 0; page < pages_->page_count(); ++page) {
    counted += references_[page];
    if ((references_[page] != 0) != pages_->mapped().test(page)) return false;
  }
  return taken == capacity() - extents_.total_free() && live == live_bytes_ && counted == references &&
         offsets_.size() == blocks_.size() && extents_.is_valid() && pages_->is_valid();
}

}  // namespace tensormem

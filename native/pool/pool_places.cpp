// Places in the pool that callers name: whole pages, the floor of the start and the ceiling of the end. Any part of
// them may be given back, so a place is split where a caller ends only part of it.
#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "pool/pool_reports.hpp"
#include "pool/pool_work.hpp"
#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

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
    PoolBlock block;
    block.id = next_id_++;
    block.offset = start;
    block.size = block.extent = nbytes;
    block.tag = tag;
    block.is_named = true;
    const auto at = note(block);
    try {
      (void)extents_.take_at(start, nbytes);
    } catch (...) {
      forget(at);
      throw;
    }
    Status status = map_missing(span, work);
    if (!status.ok()) {
      forget(at);
      extents_.give_back(start, nbytes);
      return status;
    }
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
  (void)note(upper);
  live_bytes_ -= upper.size;  // counted already
  report_resize(pages_->id(), base(), at->second, into);
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
  Uses uses;
  for (auto at = std::prev(blocks_.upper_bound(span.first * page_bytes())); at != blocks_.end() && at->first < end;
       ++at) {
    TM_TRY(check_unheld(at->second, 0));
    uses.insert(uses.end(), at->second.uses.begin(), at->second.uses.end());
  }
  Uses until;
  TM_TRY(pending_uses(uses, stream, &until));
  split_named(span.first * page_bytes());
  split_named(end);
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
    if (!ended.ok()) retire(run, {});  // it is gone for the caller; once more later
    while (at != next) forget(at++);
    is_first = false;
  }
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(PoolBlock));
}

bool VirtualMemoryPool::is_mapped(std::uint64_t offset, std::uint64_t size) const noexcept {
  PageSpan span;
  if (!check_place(offset, size, &span).ok()) return false;
  const std::lock_guard lock(mutex_);
  return live_.all_set(span.first, span.count);
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

}  // namespace tensormem

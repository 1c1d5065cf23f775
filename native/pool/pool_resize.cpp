// How blocks of the pool grow and shrink, and how one moves to another place.
#include <algorithm>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "pool/pool_reports.hpp"
#include "pool/pool_work.hpp"
#include "pool/virtual_memory_pool.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

Status check_resizable(const PoolBlock& block) {
  if (!block.suspended) return {};
  return Status::fail(Code::invalid_argument, "the block is suspended: resume it first");
}

}  // namespace

Status VirtualMemoryPool::resize(PoolBlockId id, std::uint64_t size) noexcept {
  if (size == 0 || size > capacity()) {
    return Status::fail(Code::invalid_size, size == 0 ? "no bytes asked for" : "larger than the pool", size);
  }
  PoolBlock block;
  TM_TRY(find(id, &block));
  return size <= block.size ? shrink(id, size) : grow(id, size);
}

Status VirtualMemoryPool::shrink(PoolBlockId id, std::uint64_t size) noexcept try {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  Blocks::iterator at;
  TM_TRY(find_block(id, &at));
  PoolBlock& block = at->second;
  TM_TRY(check_resizable(block));
  if (size >= block.size) return {};
  TM_TRY(check_unheld(block, 0));
  Uses until;
  TM_TRY(pending_uses(block.uses, kDefaultStream, &until));
  if (!until.empty()) {
    return Status::fail(Code::stream_misuse, "a stream still uses the block: it cannot shrink under it",
                        until.front().stream);
  }
  const PageSpan before = span_of(block.offset, block.size);
  const PageSpan after = span_of(block.offset, size);
  TM_TRY(drop_references({after.end(), before.end() - after.end()}, work));
  const std::uint64_t extent = align_up(size, kGranule);
  if (extent < block.extent) extents_.give_back(block.offset + extent, block.extent - extent);
  live_bytes_ -= block.size - size;
  report_resize(pages_->id(), base(), block, size);
  block.size = size;
  block.extent = extent;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(PoolBlock));
}

// The pages that a block gets when it grows to `size` where it is.
VirtualMemoryPool::PageSpan VirtualMemoryPool::added_span(const PoolBlock& block, std::uint64_t size) const noexcept {
  const std::uint64_t before = span_of(block.offset, block.size).end();
  return {before, span_of(block.offset, size).end() - before};
}

// The addresses are the caller's affair.
Status VirtualMemoryPool::extend(PoolBlock& block, std::uint64_t size, Work& work) {
  const PageSpan added = added_span(block, size);
  TM_TRY(map_missing(missing_in(added), work));
  add_references(added);
  live_bytes_ += size - block.size;
  report_resize(pages_->id(), base(), block, size);
  block.size = size;
  block.extent = align_up(size, kGranule);
  return {};
}

Status VirtualMemoryPool::grow_in_place(Blocks::iterator at, std::uint64_t size, Work& work, PageSpan* missing) {
  PoolBlock& block = at->second;
  const PageSpan needed = missing_in(added_span(block, size));
  if (needed.count > work.available()) {
    *missing = needed;
    return {};
  }
  const std::uint64_t old_end = block.offset + block.extent;
  const std::uint64_t more = align_up(size, kGranule) - block.extent;
  if (more != 0) (void)extents_.take_at(old_end, more);
  Status status = extend(block, size, work);
  if (!status.ok() && more != 0) extents_.give_back(old_end, more);
  return status;
}

// Moves it as it is, and lets it grow there. Both places are taken until it has; if it cannot, it goes back.
Status VirtualMemoryPool::grow_elsewhere(Blocks::iterator at, std::uint64_t size, Work& work, PageSpan* missing) {
  PoolBlock& block = at->second;
  const std::uint64_t extent = align_up(size, kGranule);
  const std::uint64_t from = block.offset;
  const std::uint64_t old_extent = block.extent;
  const std::uint64_t generation = block.generation;
  std::uint64_t to = 0;
  if (!extents_.take(extent, size >= page_bytes() ? page_bytes() : block.alignment, &to)) {
    return Status::fail(Code::out_of_virtual_memory, "no free run of addresses is that long", size);
  }
  const PageSpan needed = missing_in(span_of(to, size));
  if (needed.count > work.available()) {
    extents_.give_back(to, extent);
    *missing = needed;
    return {};
  }
  CompactionReport unseen;
  Status status = slide(at, to, work, &unseen);
  if (!status.ok()) {
    extents_.give_back(to, extent);
    return status;
  }
  status = extend(block, size, work);
  const bool is_back = !status.ok() && slide(blocks_.find(to), from, work, &unseen).ok();
  if (is_back) {
    block.generation = generation;
    extents_.give_back(to, extent);
    return status;
  }
  extents_.give_back(from, old_extent);
  if (block.extent != extent) extents_.give_back(to + block.extent, extent - block.extent);
  return status;
}

Status VirtualMemoryPool::grow(PoolBlockId id, std::uint64_t size) noexcept {
  return with_pages([&](Work& work, PageSpan* missing) -> Status {
    Blocks::iterator at;
    TM_TRY(find_block(id, &at));
    PoolBlock& block = at->second;
    TM_TRY(check_resizable(block));
    if (size <= block.size) return {};
    const std::uint64_t extent = align_up(size, kGranule);
    if (extent == block.extent || extents_.is_free(block.offset + block.extent, extent - block.extent)) {
      return grow_in_place(at, size, work, missing);
    }
    if (!can_move(block)) {
      return Status::fail(Code::out_of_virtual_memory, "the addresses behind the block are taken, and it cannot move",
                          size);
    }
    return grow_elsewhere(at, size, work, missing);
  });
}

// --- Moving one block ------------------------------------------------------------------------------------------------

bool VirtualMemoryPool::can_move(const PoolBlock& block) noexcept {
  if (!block.movable || block.is_named || block.suspended || !check_unheld(block, 0).ok()) return false;
  bool passed = false;
  return order_.are_done(block.uses, &passed).ok() && passed;
}

Status VirtualMemoryPool::copy_bytes(std::uint64_t from, std::uint64_t to, std::uint64_t size) noexcept {
  const Pitched source{base() + from, device_, size, size};
  const Pitched destination{base() + to, device_, size, size};
  TM_TRY(driver_.copy(destination, source, {size, 1, 1}, kDefaultStream));
  report_copy(destination.address, source.address, size, kDefaultStream);
  if (driver_.stream_is_inline(kDefaultStream)) return {};
  EventRef copied;
  TM_TRY(order_.mark(kDefaultStream, &copied));
  return order_.synchronize({{kDefaultStream, copied}});
}

void VirtualMemoryPool::move_note(Blocks::iterator at, std::uint64_t to, CompactionReport* report) {
  auto node = blocks_.extract(at);
  report->moves.push_back({node.mapped().id, node.key(), to});
  report_move(pages_->id(), base() + to, node.mapped().size, base() + node.key(), node.mapped().id);
  node.key() = to;
  node.mapped().offset = to;
  node.mapped().generation += 1;
  node.mapped().uses.clear();
  offsets_[node.mapped().id] = to;
  blocks_.insert(std::move(node));
}

// A move that neither keeps its last page nor finds memory where that goes.
bool VirtualMemoryPool::slide_needs_page(const PoolBlock& block, std::uint64_t to) const noexcept {
  const PageSpan before = span_of(block.offset, block.size);
  const std::uint64_t full = block.size / page_bytes();
  const std::uint64_t tail_to = to / page_bytes() + full;
  const bool is_own = tail_to >= before.first && tail_to < before.end();
  const bool has_tail = block.size % page_bytes() != 0;
  return has_tail && references_[before.first + full] > 1 && references_[tail_to] == (is_own ? 1U : 0U);
}

// To a place aligned as the block is; the extents are the caller's affair. Whole pages move by remapping, and the last
// one too if nothing else lies in it and nothing lies where it goes; otherwise its part is copied.
Status VirtualMemoryPool::slide(Blocks::iterator at, std::uint64_t to, Work& work, CompactionReport* report) {
  const PoolBlock block = at->second;
  const PageSpan before = span_of(block.offset, block.size);
  const PageSpan after = span_of(to, block.size);
  const bool is_large = is_aligned(block.offset | to, page_bytes()) && block.size >= page_bytes();
  const std::uint64_t full = is_large ? block.size / page_bytes() : 0;
  const std::uint64_t rest = block.size - full * page_bytes();
  const auto lies_in = [](std::uint64_t page, const PageSpan& span) { return page >= span.first && page < span.end(); };
  const std::uint64_t tail_to = after.first + full;
  const bool tail_is_alone = is_large && rest != 0 && references_[before.first + full] == 1;
  const bool place_is_empty = is_large && rest != 0 && references_[tail_to] == (lies_in(tail_to, before) ? 1U : 0U);
  const std::uint64_t moving = full + (tail_is_alone && place_is_empty ? 1 : 0);
  if (report->moves.size() == report->moves.capacity()) report->moves.reserve(2 * report->moves.size() + 8);
  TM_TRY(pages_->move(before.first, after.first, moving));
  const auto move_back = [&] { (void)pages_->move(after.first, before.first, moving).ok(); };

  if (rest != 0 && moving == full) {
    const PageSpan copied = span_of(to + full * page_bytes(), rest);
    PageSpan fresh = copied;  // those without memory; at most two for a small block
    while (fresh.count != 0 && pages_->mapped().test(fresh.first)) fresh = {fresh.first + 1, fresh.count - 1};
    while (fresh.count != 0 && pages_->mapped().test(fresh.end() - 1)) --fresh.count;
    Status status = map_missing(fresh, work);
    if (status.ok()) {
      status = copy_bytes(block.offset + full * page_bytes(), to + full * page_bytes(), rest);
      // Pages that only this block was in go; the whole ones have moved already.
      PageSpan gone = span_of(block.offset + full * page_bytes(), rest);
      const auto stays = [&](std::uint64_t page) { return references_[page] > 1 || lies_in(page, after); };
      while (gone.count != 0 && stays(gone.first)) gone = {gone.first + 1, gone.count - 1};
      while (gone.count != 0 && stays(gone.end() - 1)) --gone.count;
      if (status.ok() && gone.count != 0) status = pages_->unmap(gone.first, gone.count, &work.loose());
      if (!status.ok() && fresh.count != 0) (void)pages_->unmap(fresh.first, fresh.count, &work.loose()).ok();
      if (status.ok()) report->released_pages += gone.count - std::min(gone.count, fresh.count);
    }
    if (!status.ok()) {
      move_back();
      return status;
    }
    report->copied_bytes += rest;
  }
  remove_references(before);
  add_references(after);
  report->remapped_pages += moving;
  move_note(at, to, report);
  return {};
}

}  // namespace tensormem

// How blocks of the pool give up their memory and keep their addresses. Where their contents go is the caller's affair:
// it copies them away before, and back after, and holds the blocks meanwhile.
#include <new>
#include <utility>

#include "pool/pool_work.hpp"
#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

Status VirtualMemoryPool::check_suspendable(const PoolBlock& block, std::uint32_t own_holds) noexcept {
  TM_TRY(check_unheld(block, own_holds));
  bool passed = false;
  TM_TRY(order_.are_done(block.uses, &passed));
  if (passed) return {};
  return Status::fail(Code::stream_misuse, "a stream still uses memory of this tag", block.uses.front().stream);
}

Status VirtualMemoryPool::hold_tagged(TagId tag, std::vector<PoolBlock>* blocks) noexcept try {
  const std::lock_guard lock(mutex_);
  std::vector<PoolBlock> found;
  for (const auto& [offset, block] : blocks_) {
    if (block.tag != tag || block.suspended) continue;
    TM_TRY(check_suspendable(block, 0));
    found.push_back(block);
  }
  for (const PoolBlock& block : found) blocks_.find(block.offset)->second.holds += 1;
  *blocks = std::move(found);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to list blocks", sizeof(PoolBlock));
}

Status VirtualMemoryPool::list_suspended(TagId tag, std::vector<PoolBlock>* blocks) const noexcept try {
  const std::lock_guard lock(mutex_);
  std::vector<PoolBlock> found;
  for (const auto& [offset, block] : blocks_) {
    if (block.tag == tag && block.suspended) found.push_back(block);
  }
  *blocks = std::move(found);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to list blocks", sizeof(PoolBlock));
}

bool VirtualMemoryPool::has_suspended(std::uint64_t suspension) const noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [offset, block] : blocks_) {
    if (block.suspended && block.suspension == suspension) return true;
  }
  return false;
}

// --- Suspend -------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::suspend(const std::vector<PoolBlockId>& ids, std::uint64_t suspension) noexcept try {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  std::vector<Blocks::iterator> found(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    TM_TRY(find_block(ids[i], &found[i]));
    if (found[i]->second.suspended) return Status::fail(Code::invalid_argument, "the block is suspended already");
    TM_TRY(check_suspendable(found[i]->second, 1));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    PoolBlock& block = found[i]->second;
    Status status = drop_references(span_of(block.offset, block.size), work);
    if (!status.ok()) {
      undo_suspension(found, i, work);
      return status;
    }
    block.suspended = true;
    suspended_bytes_ += block.size;
  }
  for (const auto& at : found) {
    at->second.uses.clear();
    if (suspension != 0) at->second.suspension = suspension;
    release_hold(at, work);
  }
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", ids.size() * sizeof(PoolBlockId));
}

// The pages of the first `count` are still here, in the work, in the order in which they were taken, with their
// contents; the last one goes back first.
void VirtualMemoryPool::undo_suspension(const std::vector<Blocks::iterator>& found, std::size_t count, Work& work) {
  while (count-- > 0) {
    PoolBlock& back = found[count]->second;
    const PageSpan missing = missing_in(span_of(back.offset, back.size));
    const std::uint64_t kept = work.available() - missing.count;
    if (missing.count != 0 && !pages_->map(missing.first, work.pages() + kept, missing.count).ok()) return;
    work.loose().resize(kept);
    add_references(span_of(back.offset, back.size));
    back.suspended = false;
    suspended_bytes_ -= back.size;
  }
}

// --- Resume --------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::resume(const std::vector<PoolBlockId>& ids) noexcept try {
  Work work(*pages_);
  while (true) {
    std::vector<PageSpan> missing;
    {
      const std::lock_guard lock(mutex_);
      (void)reap_locked(work).ok();
      std::vector<Blocks::iterator> found(ids.size());
      std::uint64_t needed = 0;
      std::uint64_t reached = 0;  // blocks come in the order of addresses, so a shared page is counted once
      for (std::size_t i = 0; i < ids.size(); ++i) {
        TM_TRY(find_block(ids[i], &found[i]));
        if (!found[i]->second.suspended) return Status::fail(Code::invalid_argument, "the block is not suspended");
        PageSpan lacking = missing_in(span_of(found[i]->second.offset, found[i]->second.size));
        if (lacking.count != 0 && lacking.first < reached) lacking = {lacking.first + 1, lacking.count - 1};
        if (lacking.count != 0) reached = lacking.end();
        needed += lacking.count;
        missing.push_back(lacking);
      }
      if (needed <= work.available()) return resume_all(found, work);
    }
    std::uint64_t have = work.available();
    std::vector<std::uint64_t> homes;
    for (const PageSpan& span : missing) {
      for (std::uint64_t page = span.first; page < span.end(); ++page) {
        if (have == 0) homes.push_back(page);
        if (have != 0) --have;
      }
    }
    TM_TRY(work.take(homes));
  }
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", ids.size() * sizeof(PoolBlockId));
}

Status VirtualMemoryPool::resume_all(const std::vector<Blocks::iterator>& found, Work& work) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    PoolBlock& block = found[i]->second;
    const PageSpan span = span_of(block.offset, block.size);
    Status status = map_missing(missing_in(span), work);
    if (!status.ok()) {
      while (i-- > 0) {
        PoolBlock& back = found[i]->second;
        if (!drop_references(span_of(back.offset, back.size), work).ok()) continue;
        back.suspended = true;
        back.generation -= 1;
        back.holds -= 1;
        suspended_bytes_ += back.size;
      }
      return status;
    }
    add_references(span);
    block.suspended = false;
    block.generation += 1;
    block.holds += 1;
    suspended_bytes_ -= block.size;
  }
  return {};
}

}  // namespace tensormem

// How blocks of the pool give up their memory and keep their addresses. Where their contents go is the caller's affair:
// it copies them away before, and back after.
#include <new>
#include <utility>

#include "pool/pool_work.hpp"
#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

Status VirtualMemoryPool::list_tagged(TagId tag, bool suspended, std::vector<PoolBlock>* blocks) noexcept try {
  const std::lock_guard lock(mutex_);
  std::vector<PoolBlock> found;
  for (const auto& [offset, block] : blocks_) {
    if (block.tag != tag || block.suspended != suspended) continue;
    if (block.holds != 0) return Status::fail(Code::still_held, "", base() + offset, block.holds);
    bool passed = false;
    TM_TRY(order_.are_done(block.uses, &passed));
    if (!passed) {
      return Status::fail(Code::stream_misuse, "a stream still uses memory of this tag", block.uses.front().stream);
    }
    found.push_back(block);
    found.back().uses.clear();
  }
  *blocks = std::move(found);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to list blocks", sizeof(PoolBlock));
}

Status VirtualMemoryPool::suspend(const std::vector<PoolBlockId>& ids) noexcept try {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  std::vector<Blocks::iterator> found(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    TM_TRY(find_block(ids[i], &found[i]));
    if (found[i]->second.suspended) return Status::fail(Code::invalid_argument, "the block is suspended already");
    if (found[i]->second.holds != 0) {
      return Status::fail(Code::still_held, "", base() + found[i]->first, found[i]->second.holds);
    }
    bool passed = false;
    TM_TRY(order_.are_done(found[i]->second.uses, &passed));
    if (!passed) {
      return Status::fail(Code::stream_misuse, "a stream still uses memory of this tag",
                          found[i]->second.uses.front().stream);
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    PoolBlock& block = found[i]->second;
    Status status = drop_references(span_of(block.offset, block.size), work);
    if (!status.ok()) {
      // Their pages are still here, in the work, in the order in which they were taken; the last one back first.
      while (i-- > 0) {
        PoolBlock& back = found[i]->second;
        const PageSpan missing = missing_in(span_of(back.offset, back.size));
        const std::uint64_t loose = work.available();
        if (!pages_->map(missing.first, work.pages() + loose - missing.count, missing.count).ok()) continue;
        work.loose().resize(loose - missing.count);
        add_references(span_of(back.offset, back.size));
        back.suspended = false;
        suspended_bytes_ -= back.size;
      }
      return status;
    }
    block.suspended = true;
    suspended_bytes_ += block.size;
  }
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", ids.size() * sizeof(PoolBlockId));
}

Status VirtualMemoryPool::resume(const std::vector<PoolBlockId>& ids) noexcept try {
  Work work(*pages_);
  while (true) {
    std::vector<PageSpan> missing;
    {
      const std::lock_guard lock(mutex_);
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
    for (const PageSpan& span : missing) {
      const std::uint64_t skip = have < span.count ? have : span.count;
      have -= skip;
      if (span.count != skip) TM_TRY(work.take(span.first + skip, span.count - skip));
    }
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
        suspended_bytes_ += back.size;
      }
      return status;
    }
    add_references(span);
    block.suspended = false;
    block.generation += 1;
    suspended_bytes_ -= block.size;
  }
  return {};
}

}  // namespace tensormem

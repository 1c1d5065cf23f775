// What the pool tells of itself, and the walk over all its books.
#include <algorithm>
#include <new>

#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

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

// Every page is counted again from what lies in it.
bool VirtualMemoryPool::is_valid() const noexcept try {
  const std::lock_guard lock(mutex_);
  LazyArray<std::uint32_t> references(pages_->page_count());
  LazyArray<std::uint32_t> waiting(pages_->page_count());
  const auto count = [&](LazyArray<std::uint32_t>& counts, std::uint64_t offset, std::uint64_t size) {
    const PageSpan span = span_of(offset, size);
    for (std::uint64_t page = span.first; page < span.end(); ++page) ++counts[page];
  };
  std::uint64_t taken = 0;
  std::uint64_t live = 0;
  std::uint64_t suspended = 0;
  std::uint64_t before = 0;
  for (const auto& [offset, block] : blocks_) {
    if (offset != block.offset || offset < before || block.size == 0 || block.extent < block.size) return false;
    const auto named = offsets_.find(block.id);
    if (named == offsets_.end() || named->second != offset) return false;
    before = offset + block.extent;
    taken += block.extent;
    live += block.size;
    if (block.suspended) suspended += block.size;
    if (!block.suspended) count(references, offset, block.size);
    if (extents_.is_free(offset, 1) || extents_.is_free(offset + block.extent - 1, 1)) return false;
  }
  std::uint64_t retired = 0;
  retired_.for_each([&](const Retired& range) {
    taken += range.extent;
    retired += range.size;
    count(references, range.offset, range.size);
    count(waiting, range.offset, range.size);
  });
  for (std::uint64_t page = 0; page < pages_->page_count(); ++page) {
    if (references_[page] != references[page] || waiting_[page] != waiting[page]) return false;
    if ((references[page] != 0) != pages_->mapped().test(page)) return false;
    if ((references[page] > waiting[page]) != live_.test(page)) return false;
  }
  return taken == capacity() - extents_.total_free() && live == live_bytes_ && suspended == suspended_bytes_ &&
         retired == retired_bytes_ && offsets_.size() == blocks_.size() && extents_.is_valid() && live_.is_valid() &&
         pages_->is_valid();
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace tensormem

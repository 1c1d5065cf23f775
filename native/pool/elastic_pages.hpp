// Owns: one reserved range and its page table: which pages of the range are mapped, and with which physical page. Runs
// of pages are mapped, unmapped and moved by one call of the driver where it can.
// Must not know: who uses a page, or why. Not thread-safe but for the cache: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "alloc/page_bitmap.hpp"
#include "base/lazy_array.hpp"
#include "pool/page_cache.hpp"

namespace tensormem {

class ElasticPages {
 public:
  // The caller has checked the sizes. Reserves addresses; no physical memory yet.
  static Status open(Driver& driver, std::int32_t device, std::uint64_t page_bytes, std::uint64_t page_count,
                     const PageCacheOptions& options, BudgetPtr budget, std::unique_ptr<ElasticPages>* pages) noexcept;
  ~ElasticPages();
  ElasticPages(const ElasticPages&) = delete;
  ElasticPages& operator=(const ElasticPages&) = delete;

  std::uint64_t base() const noexcept { return base_; }
  // Its number in traces.
  std::uint32_t id() const noexcept { return id_; }
  std::uint64_t page_bytes() const noexcept { return page_bytes_; }
  std::uint64_t page_count() const noexcept { return mapped_.size(); }
  std::uint64_t address_of(std::uint64_t page) const noexcept { return base_ + page * page_bytes_; }
  PageCache& cache() noexcept { return cache_; }
  const PageCache& cache() const noexcept { return cache_; }
  const PageBitmap& mapped() const noexcept { return mapped_; }

  // Puts `count` pages behind [first, first + count), which must be unmapped, readable and writable: all or none.
  Status map(std::uint64_t first, const Page* pages, std::uint64_t count) noexcept;
  // Takes them from behind the addresses; they are the caller's. All or none.
  Status unmap(std::uint64_t first, std::uint64_t count, std::vector<Page>* pages) noexcept;
  // The same pages at other addresses, which must be unmapped but for what moves. All or none.
  Status move(std::uint64_t from, std::uint64_t to, std::uint64_t count) noexcept;

  bool is_valid() const noexcept;

 private:
  ElasticPages(Driver& driver, std::int32_t device, std::uint64_t base, std::uint64_t page_bytes,
               std::uint64_t page_count, const PageCacheOptions& options, BudgetPtr budget);
  Status move_apart(std::uint64_t from, std::uint64_t to, std::uint64_t count) noexcept;
  Status move_all(std::uint64_t from, std::uint64_t to, std::uint64_t count, std::uint64_t* done) noexcept;

  Driver& driver_;
  const std::int32_t device_;
  const std::uint64_t base_;
  const std::uint64_t page_bytes_;
  const std::uint32_t id_;
  PageBitmap mapped_;
  LazyArray<Page> table_;
  PageCache cache_;
};

}  // namespace tensormem

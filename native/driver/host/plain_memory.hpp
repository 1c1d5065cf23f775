// Owns: memory that is usable as soon as the call returns: from the heap, or as pages of its own where the options ask
// for something the heap cannot give (huge pages, a NUMA node, pinning, a large alignment, zeros by the page).
// Size and options decide which, so that giving back needs no header; page blocks are noted, so that giving back what
// is not one is refused. Large blocks of both kinds wish for huge pages. After a fork parent and child have a private
// copy each, as with any heap. Must not know: streams, virtual memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.hpp"
#include "driver/host/memory_gauge.hpp"
#include "driver/host/page_locks.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

class PlainMemory {
 public:
  PlainMemory(MemoryGauge& gauge, PageLocks& locks) noexcept : gauge_(gauge), locks_(locks) {}

  Status allocate(std::uint64_t nbytes, const AllocationOptions& options, std::uint64_t* address) noexcept;
  Status deallocate(std::uint64_t address, std::uint64_t nbytes, const AllocationOptions& options) noexcept;

  // What `deallocate` would refuse without looking into the heap, for callers that free later.
  Status check_deallocate(std::uint64_t address, std::uint64_t nbytes, const AllocationOptions& options) const noexcept;

  // From now on no block wishes for huge pages.
  void turn_off_huge_pages() noexcept { may_be_huge_.store(false, std::memory_order_relaxed); }

  // Blocks that have pages of their own.
  std::uint64_t page_block_count() const noexcept;

  void before_fork() noexcept { mutex_.lock(); }
  void after_fork() noexcept { mutex_.unlock(); }

 private:
  struct PageBlock {
    std::uint64_t nbytes;
    std::uint64_t mapped_bytes;
    bool pinned;
  };

  Status out_of_memory(std::uint64_t nbytes, const char* what) const noexcept;
  Status allocate_now(std::uint64_t nbytes, const AllocationOptions& options, std::uint64_t* address) noexcept;
  Status allocate_pages(std::uint64_t nbytes, const AllocationOptions& options, std::uint64_t* address) noexcept;
  Status prepare_pages(std::uint64_t address, std::uint64_t size, std::uint64_t nbytes,
                       const AllocationOptions& options) noexcept;
  Status deallocate_pages(std::uint64_t address, std::uint64_t nbytes) noexcept;
  Status note(std::uint64_t address, const PageBlock& block) noexcept;
  void wish_for_huge_pages(std::uint64_t address, std::uint64_t nbytes) const noexcept;

  MemoryGauge& gauge_;
  PageLocks& locks_;
  std::atomic<bool> may_be_huge_{true};
  mutable std::mutex mutex_;
  std::map<std::uint64_t, PageBlock> blocks_;
};

}  // namespace tensormem::host

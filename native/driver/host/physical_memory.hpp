// Owns: physical memory: pages in a memory file, committed when made (as a GPU driver does), so that touching them
// later cannot fail. Ordinary pages are slots of one sparse file; memory that will be handed to another process, or
// came from one, has a file of its own. Pages live as long as their handle or a mapping of them.
//
// After a fork the pages belong to the parent alone: the child closes the files, and may only destroy its handles,
// which then touches nothing of the parent's. Must not know: addresses other than its own short-lived windows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "driver/host/huge_pages.hpp"
#include "driver/host/memfd_arena.hpp"
#include "driver/host/memory_gauge.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

// Constant once made, but for `mappings` and what the table's lock guards.
struct Physical {
  enum class State : std::uint8_t { making, live, destroyed };

  PhysicalHandle handle = kNoPhysical;
  std::uint64_t size = 0;
  int fd = -1;
  std::uint64_t file_offset = 0;
  std::uint64_t file_id = 0;  // areas of one file can join in the kernel
  MemfdArena::Slot slot;      // unless `owns_file`
  bool owns_file = false;
  bool imported = false;
  bool huge = false;
  bool from_parent = false;  // made before a fork
  std::atomic<std::uint64_t> mappings{0};
  State state = State::making;  // guarded by the table's lock
};

class PhysicalMemory {
 public:
  explicit PhysicalMemory(MemoryGauge& gauge) noexcept : gauge_(gauge) {}

  Status create(std::uint64_t size, const PhysicalOptions& options, PhysicalHandle* handle) noexcept;
  Status destroy(PhysicalHandle handle) noexcept;
  Status info(PhysicalHandle handle, PhysicalInfo* info) const noexcept;
  Status export_fd(PhysicalHandle handle, std::int32_t* fd) const noexcept;
  Status import_fd(std::int32_t fd, PhysicalHandle* handle) noexcept;

  // Take a mapping of the memory, which keeps its pages; `release` may give them back to the system (slow: hold no
  // lock).
  Status acquire(PhysicalHandle handle, Physical** physical) noexcept;
  void release(Physical* physical) noexcept;

  HugePages& huge_pages() noexcept { return huge_pages_; }
  std::uint64_t count() const noexcept;
  std::uint64_t committed_bytes() const noexcept;
  // Slots and windows whose giving back the kernel refused; tried again with the next `create` or `destroy`.
  std::uint64_t leftover_count() const noexcept;
  bool is_valid() const noexcept;

  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  void after_fork_in_child() noexcept;

 private:
  struct Window {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
  };

  Status add(std::unique_ptr<Physical> physical, Physical** added) noexcept;
  Status find(PhysicalHandle handle, Physical** physical) const noexcept;
  Status create_once(std::uint64_t size, const PhysicalOptions& options, PhysicalHandle* handle) noexcept;
  Status make(Physical& physical, const PhysicalOptions& options) noexcept;
  Status open_own_file(Physical& physical) noexcept;
  Status adopt_file(Physical& physical, std::int32_t fd) noexcept;
  Status commit(Physical& physical, bool huge) noexcept;
  bool commit_huge(Physical& physical) noexcept;
  int open_window(const Physical& physical, Window* window) noexcept;
  void close_window(const Window& window) noexcept;
  void remember_window(const Window& window) noexcept;
  void retry_leftovers() noexcept;
  void discard(Physical* physical) noexcept;

  MemoryGauge& gauge_;
  HugePages huge_pages_;
  mutable std::mutex mutex_;
  MemfdArena arena_;
  std::unordered_map<PhysicalHandle, std::unique_ptr<Physical>> all_;  // also those destroyed but still mapped
  std::vector<Window> leftover_windows_;
  PhysicalHandle next_handle_ = 1;
};

}  // namespace tensormem::host

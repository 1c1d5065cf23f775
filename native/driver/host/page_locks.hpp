// Owns: which pages are locked in memory, and how many times. The kernel does not count: one munlock undoes every mlock
// of a page, so pins that share a page would undo each other. Here a page is unlocked with its last pin.
// Must not know: who owns the memory.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/status.hpp"

namespace tensormem::host {

class PageLocks {
 public:
  // `driver_error` with the errno of mlock when the kernel refuses (usually RLIMIT_MEMLOCK); nothing is locked then.
  Status pin(std::uint64_t address, std::uint64_t nbytes) noexcept;
  // The address and size of one earlier `pin`.
  Status unpin(std::uint64_t address, std::uint64_t nbytes) noexcept;
  // For memory that has been unmapped, which unlocked it.
  void forget(std::uint64_t address, std::uint64_t nbytes) noexcept;

  std::uint64_t pin_count() const noexcept;
  bool is_valid() const noexcept;

  void before_fork() noexcept { mutex_.lock(); }
  void after_fork() noexcept { mutex_.unlock(); }

 private:
  using Range = std::pair<std::uint64_t, std::uint64_t>;  // address and size
  static bool pages_of(std::uint64_t address, std::uint64_t nbytes, std::uint64_t* begin, std::uint64_t* end) noexcept;

  // Counts are steps: from each key up to the next one, pages have the value's number of pins.
  void split_at(std::uint64_t address);
  void merge(std::uint64_t begin, std::uint64_t end) noexcept;
  void add(std::uint64_t begin, std::uint64_t end, int change) noexcept;
  int unlock_unpinned(std::uint64_t begin, std::uint64_t end) noexcept;
  bool remove_pin(std::uint64_t address, std::uint64_t nbytes) noexcept;

  mutable std::mutex mutex_;
  std::map<Range, std::uint64_t> pins_;
  std::map<std::uint64_t, std::uint64_t> steps_;
};

}  // namespace tensormem::host

// Owns: one piece of physical memory, from its making to the end of its handle, and the count of its mappings. The
// handle ends exactly once: when it is freed, or when it was closed (or dropped) and its last mapping is gone.
// Must not know: where it is mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.hpp"
#include "driver/driver.hpp"
#include "vmm/vmm_counters.hpp"

namespace tensormem {

class PhysicalAllocation {
 public:
  PhysicalAllocation(Driver& driver, PhysicalHandle handle, const PhysicalInfo& info,
                     std::shared_ptr<VmmCounters> counters) noexcept;
  ~PhysicalAllocation();
  PhysicalAllocation(const PhysicalAllocation&) = delete;
  PhysicalAllocation& operator=(const PhysicalAllocation&) = delete;

  Driver& driver() const noexcept { return driver_; }
  PhysicalHandle handle() const noexcept { return handle_; }
  std::uint64_t size() const noexcept { return info_.size; }
  const PhysicalInfo& info() const noexcept { return info_; }
  std::uint64_t mapping_count() const noexcept { return state_.load() & ~kClosed; }
  bool is_valid() const noexcept { return info_.size != 0 && counters_ != nullptr && mapping_count() < kClosed / 2; }
  // No new mapping can be made of it, and no descriptor.
  bool is_closed() const noexcept { return (state_.load() & kClosed) != 0; }

  // `still_mapped` while there are mappings, `use_after_release` when it is closed.
  Status free() noexcept;
  // Gives up the handle; the pages stay until the last mapping is gone. Once or many times.
  void close() noexcept;
  Status export_fd(std::int32_t* fd) noexcept;
  // `charge` is dropped when the pages are gone. Before anybody else has this.
  void keep_charge(std::shared_ptr<void> charge) noexcept { charge_ = std::move(charge); }

  // A mapping begins and ends. `repeat` is for one that is split: there is one already.
  Status acquire() noexcept;
  void repeat() noexcept { state_.fetch_add(1); }
  void release() noexcept;

 private:
  static constexpr std::uint64_t kClosed = 1ULL << 63;
  Status closed_failure() const noexcept;
  Status destroy() noexcept;

  Driver& driver_;
  const PhysicalHandle handle_;
  const PhysicalInfo info_;
  const std::shared_ptr<VmmCounters> counters_;
  std::atomic<std::uint64_t> state_{0};  // mappings, and kClosed
  std::shared_ptr<void> charge_;         // what is paid for the pages, by whoever counts them
};

using PhysicalPtr = std::shared_ptr<PhysicalAllocation>;

}  // namespace tensormem

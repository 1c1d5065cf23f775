// Owns: the making of address ranges and physical memory on one device of one driver, checked before the driver is
// asked; the count of what is out; and taking all of it down. What it makes keeps what it needs of it, and may outlive
// it. Must not know: who holds what it made.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "driver/driver.hpp"
#include "vmm/address_range.hpp"
#include "vmm/physical_allocation.hpp"
#include "vmm/vmm_counters.hpp"
#include "vmm/weak_list.hpp"

namespace tensormem {

class VirtualMemoryManager {
 public:
  static Status open(Driver& driver, std::int32_t device, std::unique_ptr<VirtualMemoryManager>* manager) noexcept;

  Driver& driver() const noexcept { return driver_; }
  std::int32_t device() const noexcept { return device_; }
  const Granularity& granularity() const noexcept { return granularity_; }
  const VmmCounters& counters() const noexcept { return *counters_; }

  Status reserve(std::uint64_t size, std::uint64_t alignment, AddressRangePtr* range) noexcept;
  Status alloc_physical(std::uint64_t size, std::int32_t device, const PhysicalOptions& options,
                        PhysicalPtr* physical) noexcept;
  // With an `expected_size`, memory of another size is refused.
  Status import_physical(std::int32_t fd, std::int32_t device, std::uint64_t expected_size,
                         PhysicalPtr* physical) noexcept;

  // Unmaps everything, lets go of all physical memory, and releases all addresses, in this order, whoever holds them.
  // Goes as far as it can; what the driver refuses is tried again by the next call. Nothing can be made afterwards.
  Status close() noexcept;
  bool is_closed() const noexcept { return closed_.load(); }
  // All that it made and that lives, too.
  bool is_valid() const;

 private:
  VirtualMemoryManager(Driver& driver, std::int32_t device, const Granularity& granularity);
  Status check_open() const noexcept;
  Status adopt(PhysicalHandle handle, std::uint64_t said_size, PhysicalPtr* physical) noexcept;
  template <typename T>
  Status remember(WeakList<T>& list, const std::shared_ptr<T>& made);

  Driver& driver_;
  const std::int32_t device_;
  const Granularity granularity_;
  const std::shared_ptr<VmmCounters> counters_;
  std::atomic<bool> closed_{false};
  mutable Mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  WeakList<AddressRange> ranges_;
  WeakList<PhysicalAllocation> physicals_;
};

}  // namespace tensormem

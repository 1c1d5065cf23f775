#include "vmm/virtual_memory_manager.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/align.hpp"
#include "base/used_range.hpp"

namespace tensormem {

namespace {

Status no_memory_for_books(std::uint64_t nbytes) {
  return Status::fail(Code::out_of_memory, "no memory to note virtual memory", nbytes);
}

Status check_size(std::uint64_t size, std::uint64_t granularity) {
  if (size == 0) return Status::fail(Code::invalid_size, "no bytes asked for", size);
  if (size > kNoOverflowLimit) return Status::fail(Code::invalid_size, "larger than any memory", size);
  if (!is_aligned(size, granularity)) {
    return Status::fail(Code::invalid_size, "the size is not a multiple of the granularity", size);
  }
  return {};
}

}  // namespace

VirtualMemoryManager::VirtualMemoryManager(Driver& driver, std::int32_t device, const Granularity& granularity)
    : driver_(driver), device_(device), granularity_(granularity), counters_(std::make_shared<VmmCounters>()) {}

Status VirtualMemoryManager::open(Driver& driver, std::int32_t device,
                                  std::unique_ptr<VirtualMemoryManager>* manager) noexcept try {
  DeviceInfo info;
  Granularity granularity;
  TM_TRY(driver.device_info(device, &info));
  if (!info.virtual_memory) return Status::fail(Code::not_supported, "the device has no virtual memory management");
  TM_TRY(driver.granularity(device, &granularity));
  manager->reset(new VirtualMemoryManager(driver, device, granularity));
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books(sizeof(VirtualMemoryManager));
}

Status VirtualMemoryManager::check_open() const noexcept {
  return is_closed() ? Status::fail(Code::use_after_release, "the manager was closed", 0) : Status();
}

// A manager that was closed meanwhile would not find it again; the caller drops it.
template <typename T>
Status VirtualMemoryManager::remember(WeakList<T>& list, const std::shared_ptr<T>& made) {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_open());
  list.add(made);
  return {};
}

Status VirtualMemoryManager::reserve(std::uint64_t size, std::uint64_t alignment, AddressRangePtr* range) noexcept {
  TM_TRY(check_open());
  if (!is_power_of_two(alignment)) {
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two", alignment);
  }
  TM_TRY(check_size(size, granularity_.minimum));
  if (!is_aligned(size, alignment)) {
    return Status::fail(Code::invalid_size, "the size is not a multiple of the alignment", size);
  }
  std::uint64_t base = 0;
  TM_TRY(driver_.reserve(size, alignment, &base));
  const MappingRules rules{granularity_.minimum, granularity_.whole_handles};
  AddressRangePtr made;
  try {
    made = std::make_shared<AddressRange>(driver_, base, size, alignment, rules, counters_);
    TM_TRY(remember(ranges_, made));
  } catch (const std::bad_alloc&) {
    if (made == nullptr) (void)driver_.release(base, size).ok();
    return no_memory_for_books(sizeof(AddressRange));
  }
  *range = std::move(made);
  return {};
}

Status VirtualMemoryManager::alloc_physical(std::uint64_t size, std::int32_t device, const PhysicalOptions& options,
                                            PhysicalPtr* physical) noexcept {
  TM_TRY(check_open());
  TM_TRY(check_size(size, granularity_.minimum));
  PhysicalHandle handle = kNoPhysical;
  TM_TRY(driver_.physical_create(device, size, options, &handle));
  return adopt(handle, 0, physical);
}

Status VirtualMemoryManager::import_physical(std::int32_t fd, std::int32_t device, std::uint64_t expected_size,
                                             PhysicalPtr* physical) noexcept {
  TM_TRY(check_open());
  PhysicalHandle handle = kNoPhysical;
  TM_TRY(driver_.physical_import(device, fd, &handle));
  PhysicalPtr imported;
  TM_TRY(adopt(handle, expected_size, &imported));
  if (expected_size != 0 && imported->size() != expected_size) {
    return Status::fail(Code::invalid_argument, "the imported memory has another size than was said");
  }
  *physical = std::move(imported);
  return {};
}

// A descriptor of a GPU's memory does not tell how much it is: then what was said counts, and the driver that maps it
// knows better.
Status VirtualMemoryManager::adopt(PhysicalHandle handle, std::uint64_t said_size, PhysicalPtr* physical) noexcept {
  PhysicalInfo info;
  PhysicalPtr made;
  Status status = driver_.physical_info(handle, &info);
  if (status.ok() && info.size == 0) info.size = said_size;
  if (status.ok() && info.size == 0)
    status = Status::fail(Code::invalid_size, "the descriptor does not tell the size of its memory: say it", 0);
  if (status.ok() && !is_aligned(info.size, granularity_.minimum))
    status = Status::fail(Code::invalid_size, "the size is not a multiple of the granularity", info.size);
  try {
    if (status.ok()) made = std::make_shared<PhysicalAllocation>(driver_, handle, info, counters_);
    if (status.ok()) status = remember(physicals_, made);
  } catch (const std::bad_alloc&) {
    status = no_memory_for_books(sizeof(PhysicalAllocation));
  }
  if (made == nullptr) (void)driver_.physical_destroy(handle).ok();
  if (status.ok()) *physical = std::move(made);
  return status;
}

Status VirtualMemoryManager::close() noexcept try {
  std::vector<AddressRangePtr> ranges;
  std::vector<PhysicalPtr> physicals;
  {
    const std::lock_guard lock(mutex_);
    ranges = ranges_.alive();
    for (const AddressRangePtr& range : ranges) {
      if (is_used(range->base(), range->size()))
        return Status::fail(Code::still_held, "a call was given an address in a range of it", range->base(), 1);
    }
    closed_.store(true);
    physicals = physicals_.alive();
  }
  // What cannot be unmapped now is tried again with its addresses.
  for (const AddressRangePtr& range : ranges) (void)range->unmap_all().ok();
  for (const PhysicalPtr& physical : physicals) physical->close();
  Status first;
  for (const AddressRangePtr& range : ranges) {
    Status status = range->close();
    if (first.ok()) first = std::move(status);
  }
  return first;
} catch (const std::bad_alloc&) {
  return no_memory_for_books(sizeof(AddressRangePtr));
}

bool VirtualMemoryManager::is_valid() const {
  std::vector<AddressRangePtr> ranges;
  std::vector<PhysicalPtr> physicals;
  {
    const std::lock_guard lock(mutex_);
    if (!ranges_.is_valid() || !physicals_.is_valid()) return false;
    ranges = ranges_.alive();
    physicals = physicals_.alive();
  }
  return std::ranges::all_of(ranges, [](const AddressRangePtr& each) { return each->is_valid(); }) &&
         std::ranges::all_of(physicals, [](const PhysicalPtr& each) { return each->is_valid(); });
}

}  // namespace tensormem

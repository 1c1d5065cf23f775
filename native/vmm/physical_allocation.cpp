#include "vmm/physical_allocation.hpp"

#include <utility>

#include "base/invariant.hpp"

namespace tensormem {

PhysicalAllocation::PhysicalAllocation(Driver& driver, PhysicalHandle handle, const PhysicalInfo& info,
                                       std::shared_ptr<VmmCounters> counters) noexcept
    : driver_(driver), handle_(handle), info_(info), counters_(std::move(counters)) {
  counters_->physicals += 1;
  counters_->physical_bytes += info_.size;
}

PhysicalAllocation::~PhysicalAllocation() {
  TM_WALK(is_valid());
  TM_ASSERT(mapping_count() == 0);  // a mapping holds it
  close();
}

Status PhysicalAllocation::closed_failure() const noexcept {
  return Status::fail(Code::use_after_release, "the physical memory was freed", handle_);
}

Status PhysicalAllocation::destroy() noexcept {
  TM_TRY(driver_.physical_destroy(handle_));
  counters_->physicals -= 1;
  counters_->physical_bytes -= info_.size;
  charge_.reset();
  return {};
}

Status PhysicalAllocation::free() noexcept {
  std::uint64_t unused = 0;
  if (!state_.compare_exchange_strong(unused, kClosed)) {
    if ((unused & kClosed) != 0) return closed_failure();
    return Status::fail(Code::still_mapped, "the physical memory is still mapped", handle_, unused);
  }
  Status status = destroy();
  if (!status.ok()) state_.store(0);
  return status;
}

void PhysicalAllocation::close() noexcept {
  if (state_.fetch_or(kClosed) == 0) (void)destroy().ok();
}

Status PhysicalAllocation::acquire() noexcept {
  std::uint64_t before = state_.load();
  do {
    if ((before & kClosed) != 0) return closed_failure();
  } while (!state_.compare_exchange_weak(before, before + 1));
  return {};
}

void PhysicalAllocation::release() noexcept {
  TM_ASSERT(mapping_count() > 0);
  if (state_.fetch_sub(1) == kClosed + 1) (void)destroy().ok();
}

Status PhysicalAllocation::export_fd(std::int32_t* fd) noexcept {
  TM_TRY(acquire());  // it cannot be freed meanwhile
  Status status = driver_.physical_export(handle_, fd);
  release();
  return status;
}

}  // namespace tensormem

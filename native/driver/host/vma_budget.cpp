#include "driver/host/vma_budget.hpp"

#include <algorithm>
#include <cstdlib>

#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

constexpr std::uint64_t kDefaultLimit = 65530;  // the kernel's, should its file be unreadable

}  // namespace

void VmaBudget::read_limit() noexcept {
  char text[32];
  const bool readable = os::read_text("/proc/sys/vm/max_map_count", text, sizeof text) == 0;
  const std::uint64_t found = readable ? std::strtoull(text, nullptr, 10) : 0;
  limit_ = found != 0 ? found : kDefaultLimit;
}

void VmaBudget::read_others() noexcept {
  std::uint64_t lines = 0;
  if (os::count_lines("/proc/self/maps", &lines) != 0) return;
  others_ = static_cast<std::int64_t>(lines) - ours_;
  ours_at_read_ = ours_;
}

std::uint64_t VmaBudget::counted() const noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(others_ + ours_, 0));
}

std::uint64_t VmaBudget::limit() noexcept {
  if (limit_ == 0) {
    read_limit();
    read_others();
  }
  return limit_;
}

std::uint64_t VmaBudget::current() noexcept {
  (void)limit();
  return counted();
}

Status VmaBudget::refusal() const noexcept {
  return Status::fail(Code::too_many_mappings, "vm.max_map_count leaves no room for more memory areas", counted(),
                      limit_);
}

bool VmaBudget::may_be_outdated() const noexcept {
  return std::abs(ours_ - ours_at_read_) >= kChangesBetweenReads ||
         others_ >= static_cast<std::int64_t>(limit_ / kManyOthers);
}

Status VmaBudget::admit_below(std::uint64_t extra, std::uint64_t spare) noexcept {
  if (extra == 0 || current() + extra + spare <= limit()) [[likely]]
    return {};
  if (may_be_outdated()) {
    read_limit();
    read_others();
    if (counted() + extra + spare <= limit_) return {};
  }
  return refusal();
}

bool VmaBudget::is_exhausted() noexcept {
  read_limit();
  read_others();
  return counted() + 2 >= limit_;
}

}  // namespace tensormem::host

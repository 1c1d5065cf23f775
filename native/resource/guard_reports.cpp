#include "resource/guard_reports.hpp"

#include <algorithm>
#include <iterator>

namespace tensormem {

void GuardReports::add(const GuardFinding& finding, bool untold) {
  std::vector<GuardFinding> forgotten;  // ends after the lock: their stacks are dropped by a hook
  {
    const std::lock_guard lock(mutex_);
    ++count_;
    const auto keep_in = [&](std::deque<GuardFinding>& kept) {
      kept.push_back(finding);
      if (kept.size() <= kKept) return;
      forgotten.push_back(std::move(kept.front()));
      kept.pop_front();
    };
    keep_in(recent_);
    if (untold) keep_in(untold_);
  }
  if (hook_) hook_(finding);
}

bool GuardReports::last(GuardFinding* finding) const {
  GuardFinding found;
  {
    const std::lock_guard lock(mutex_);
    if (recent_.empty()) return false;
    found = recent_.back();
  }
  *finding = std::move(found);
  return true;
}

bool GuardReports::about(std::uint64_t generation, GuardFinding* finding) const {
  GuardFinding found;
  {
    const std::lock_guard lock(mutex_);
    const auto newest = std::find_if(recent_.rbegin(), recent_.rend(), [generation](const GuardFinding& each) {
      return each.block.generation == generation;
    });
    if (newest == recent_.rend()) return false;
    found = *newest;
  }
  *finding = std::move(found);
  return true;
}

void GuardReports::take_untold(std::vector<GuardFinding>* findings) {
  const std::lock_guard lock(mutex_);
  std::ranges::move(untold_, std::back_inserter(*findings));
  untold_.clear();
}

std::uint64_t GuardReports::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

}  // namespace tensormem

// Owns: the findings of one debug guard: the last ones, those that nobody was told of yet, and how many there were.
// Must not know: how damage is found. Thread-safe; the hook is called without any lock of ours.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/guard_finding.hpp"

namespace tensormem {

class GuardReports {
 public:
  using Hook = std::function<void(const GuardFinding& finding)>;

  explicit GuardReports(Hook hook) : hook_(std::move(hook)) {}

  // `untold`: no caller gets it as a failure, so it is kept for `take_untold`.
  void add(const GuardFinding& finding, bool untold);
  // The newest; false when there is none.
  bool last(GuardFinding* finding) const;
  // The newest about one block; false when it is not among those kept.
  bool about(std::uint64_t generation, GuardFinding* finding) const;
  void take_untold(std::vector<GuardFinding>* findings);
  std::uint64_t count() const;

 private:
  static constexpr std::size_t kKept = 64;  // so that a program full of errors does not fill the memory with reports

  const Hook hook_;
  mutable std::mutex mutex_;  // guards the rest
  ForkGuard fork_guard_{mutex_};
  std::deque<GuardFinding> recent_;
  std::deque<GuardFinding> untold_;
  std::uint64_t count_ = 0;
};

}  // namespace tensormem

// Owns: when a planner has to stop: at a deadline, or when whoever watches it says so. It is asked often and looks at
// the clock; the watcher hears of it a few times a second. Must not know: what is planned, or who watches.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace tensormem {

struct PlanProgress {
  double seconds = 0;
  std::int64_t height = 0;  // of the best plan so far; 0 while there is none
  std::int64_t bound = 0;   // no plan is lower, as far as is known
  std::uint64_t steps = 0;  // greedy runs and places tried by the search
};

class PlanWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Watcher = std::function<bool(const PlanProgress&)>;  // false: stop

  PlanWatch(double seconds, Watcher watcher) : start_(Clock::now()), limit_(seconds), watcher_(std::move(watcher)) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool was_cancelled() const { return cancelled_; }
  // Whether it is time to stop. Once true, always true.
  bool is_over() {
    if (over_) return true;
    progress.seconds = seconds();
    if (watcher_ && progress.seconds >= next_report_) {
      next_report_ = progress.seconds + kReportEvery;
      cancelled_ = !watcher_(progress);
    }
    over_ = cancelled_ || progress.seconds >= limit_;
    return over_;
  }

  PlanProgress progress;

 private:
  static constexpr double kReportEvery = 0.02;  // signals are heard this often, too

  const Clock::time_point start_;
  const double limit_;
  const Watcher watcher_;
  double next_report_ = 0;
  bool cancelled_ = false;
  bool over_ = false;
};

}  // namespace tensormem

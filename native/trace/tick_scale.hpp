// Owns: how ticks of the trace clock become nanoseconds: along straight lines between points at which both clocks were
// read, one after the other, so no time is spent on calibrating and a drift cannot add up. The lines meet, and a tick
// has the same time whether it is asked for now or one point later: events never change places. Must not know: events.
#pragma once

#include <cstdint>

#include "trace/clock.hpp"

namespace tensormem {

class TickScale {
 public:
  void start() noexcept {
    start_ns_ = 0;
    const Point now = read();
    start_ns_ = now.ns;
    oldest_ = middle_ = newest_ = {now.ticks, 0};
    rate_before_ = rate_ = 0.0;
  }
  // From here on `to_ns` is right for ticks up to now.
  void advance() noexcept {
    const Point now = read();
    if (now.ticks <= newest_.ticks || now.ns <= newest_.ns) return;
    oldest_ = middle_;
    middle_ = newest_;
    newest_ = now;
    rate_before_ = rate_;
    rate_ = static_cast<double>(newest_.ns - middle_.ns) / static_cast<double>(newest_.ticks - middle_.ticks);
    if (rate_before_ == 0.0) rate_before_ = rate_;
  }
  std::uint64_t to_ns(std::uint64_t ticks) const noexcept {
    // A thread that was held up between stamping and reporting is read with the line of its own time.
    return ticks < middle_.ticks ? along(oldest_, rate_before_, ticks) : along(middle_, rate_, ticks);
  }
  std::uint64_t now_ns() const noexcept { return newest_.ns; }
  // On the system's monotonic clock.
  std::uint64_t start_ns() const noexcept { return start_ns_; }

 private:
  struct Point {
    std::uint64_t ticks = 0;
    std::uint64_t ns = 0;  // since the start
  };
  static constexpr int kTries = 8;
  static constexpr std::uint64_t kCloseTicks = 2000;

  // Both clocks at nearly the same moment: a thread that loses its core in between tries again.
  Point read() const noexcept {
    Point best;
    std::uint64_t closest = ~0ULL;
    for (int tries = 0; tries < kTries && closest > kCloseTicks; ++tries) {
      const std::uint64_t before = trace_ticks();
      const std::uint64_t ns = monotonic_ns();
      const std::uint64_t gap = trace_ticks() - before;
      if (gap < closest) {
        closest = gap;
        best = {before + gap / 2, ns - start_ns_};
      }
    }
    return best;
  }
  static std::uint64_t along(const Point& from, double rate, std::uint64_t ticks) noexcept {
    const double past = static_cast<double>(static_cast<std::int64_t>(ticks - from.ticks)) * rate;
    const auto ns = static_cast<std::int64_t>(from.ns) + static_cast<std::int64_t>(past);
    return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
  }

  std::uint64_t start_ns_ = 0;
  Point oldest_;
  Point middle_;
  Point newest_;
  double rate_before_ = 0.0;  // from the oldest point to the middle one
  double rate_ = 0.0;         // from there to the newest
};

}  // namespace tensormem

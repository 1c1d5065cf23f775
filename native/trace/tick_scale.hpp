// Owns: how ticks of the trace clock become nanoseconds: along straight lines between points at which both clocks were
// read, one after the other, so no time is spent on calibrating and a drift cannot add up. The lines meet, and all
// points are kept: a tick has the same time whenever it is asked for, so events never change places, however long a
// thread was held up between stamping and reporting. Must not know: events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trace/clock.hpp"

namespace tensormem {

class TickScale {
 public:
  void start() {
    start_ns_ = 0;
    const Point now = read();
    start_ns_ = now.ns;
    points_.assign(1, {now.ticks, 0});
    advance();
  }
  // From here on `to_ns` is right for ticks up to now.
  void advance() {
    Point now = read();
    while (now.ticks <= points_.back().ticks || now.ns <= points_.back().ns) now = read();
    points_.push_back(now);
  }
  std::uint64_t to_ns(std::uint64_t ticks) const noexcept {
    // Nearly always the last line; ticks from before the first point follow the first line.
    auto end = points_.end() - 1;
    if (ticks < (end - 1)->ticks) {
      end = std::upper_bound(points_.begin() + 1, end, ticks,
                             [](std::uint64_t tick, const Point& point) { return tick < point.ticks; });
    }
    return along(*(end - 1), *end, ticks);
  }
  std::uint64_t now_ns() const noexcept { return points_.empty() ? 0 : points_.back().ns; }
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
  static std::uint64_t along(const Point& from, const Point& to, std::uint64_t ticks) noexcept {
    const double rate = static_cast<double>(to.ns - from.ns) / static_cast<double>(to.ticks - from.ticks);
    const double past = static_cast<double>(static_cast<std::int64_t>(ticks - from.ticks)) * rate;
    const auto ns = static_cast<std::int64_t>(from.ns) + static_cast<std::int64_t>(past);
    return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
  }

  std::uint64_t start_ns_ = 0;
  std::vector<Point> points_;  // at least two from the start on; one more with every flush
};

}  // namespace tensormem

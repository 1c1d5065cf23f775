// Owns: plans of instances that are too large for the exact search and have a narrow peak. What lives at the peak is
// stacked first, so that what begins and ends at about the same time lies together: the space that is left before and
// after is in few pieces. The other items of nearly full moments follow, then the rest, the largest first. Who does not
// fit below the ceiling gets a turn in half the time, and everything is placed again: as the hardest come first, most
// tries end early. Must not know: how the greedy finds a gap.
#pragma once

#include <limits>

#include "plan/greedy.hpp"
#include "plan/plan_watch.hpp"

namespace tensormem {

class PeakStack {
 public:
  PeakStack(const PlanItems& items, const Cliques& cliques, Greedy& greedy);

  // One way to stack, the next one each time, under ceilings from near `goal` to halfway up to the best. Only a lower
  // plan replaces `best`.
  void improve(std::int64_t goal, PlanWatch& watch, Placement* best);

 private:
  struct Way {
    double before;  // what a moment before the peak counts against one after it
    double hot;     // the share of the peak from which on a moment is nearly full
  };
  Greedy::Order order(const Way& way) const;
  bool lives_at_peak(std::int32_t item) const;
  bool reach(Greedy::Order order, std::int64_t ceiling, PlanWatch& watch, Placement* out);

  const PlanItems& items_;
  const Cliques& cliques_;
  Greedy& greedy_;
  const std::int32_t peak_;  // the moment
  std::int64_t peak_time_ = std::numeric_limits<std::int64_t>::min();
  std::size_t turn_ = 0;
};

}  // namespace tensormem

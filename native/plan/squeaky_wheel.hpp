// Owns: the improvement of a greedy order: whoever came to lie above the goal gets an earlier turn, and the greedy runs
// again. Good for instances that are too large for the exact search. Must not know: how the greedy finds a gap.
#pragma once

#include "plan/greedy.hpp"
#include "plan/plan_random.hpp"
#include "plan/plan_watch.hpp"

namespace tensormem {

class SqueakyWheel {
 public:
  SqueakyWheel(const PlanItems& items, Greedy& greedy, std::uint64_t seed)
      : items_(items), greedy_(greedy), random_(seed) {}

  // Tries `rounds` times to get `best`, which came from `order` and `fit`, down to `goal`. Only a lower plan replaces
  // it.
  void improve(Greedy::Order order, Fit fit, std::int64_t goal, int rounds, PlanWatch& watch, Placement* best);

 private:
  Greedy::Order with_earlier_turns(const Greedy::Order& order, const Placement& tried, std::int64_t goal);

  const PlanItems& items_;
  Greedy& greedy_;
  PlanRandom random_;
};

}  // namespace tensormem

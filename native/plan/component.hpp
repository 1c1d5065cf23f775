// Owns: the plan of items of which each lives at once with some other: the best one so far, and the ways to a better
// one, from fast to exact. Must not know: units, other components.
#pragma once

#include <memory>

#include "plan/exact_search.hpp"
#include "plan/greedy.hpp"
#include "plan/peak_stack.hpp"
#include "plan/skyline_search.hpp"
#include "plan/squeaky_wheel.hpp"

namespace tensormem {

class Component {
 public:
  Component(PlanItems items, std::vector<std::size_t> numbers, std::uint64_t seed);

  const std::vector<std::size_t>& numbers() const { return numbers_; }  // of the items, in the caller's list
  const Placement& best() const { return best_; }
  std::int64_t bound() const { return bound_; }  // no plan is lower, as far as is known
  bool is_optimal() const { return best_.height == bound_; }
  // What was found is a plan: nothing that lives at once overlaps, and it is as high as it says.
  bool is_valid() const;

  void try_greedy(std::int64_t goal, PlanWatch& watch);
  // One more round of improvement and search towards `goal`. What lies between is looked for too, unless only the goal
  // counts. False when nothing is left to try.
  bool work(std::int64_t goal, bool only_goal, PlanWatch& watch);

 private:
  void improve(std::int64_t goal, PlanWatch& watch);
  void search(std::int64_t goal, bool only_goal, PlanWatch& watch);
  void keep_found(const Offsets& offsets);
  std::int64_t next_target(std::int64_t goal, bool only_goal);
  void keep(const Placement& placement);

  const PlanItems items_;
  const std::vector<std::size_t> numbers_;
  const Cliques cliques_;
  Greedy greedy_;
  SqueakyWheel wheel_;
  PeakStack stack_;
  std::unique_ptr<SkylineSearch> skyline_;  // neither for what is too large
  std::unique_ptr<ExactSearch> search_;
  std::int64_t bound_;
  Placement best_;
  std::size_t turn_ = 0;
  bool searches_next_ = false;
  bool stacks_next_ = false;     // instead of improving an order
  std::int64_t undecided_ = -1;  // the highest capacity that the search gave up on in this pass
  int runs_ = 64;                // of the search at one capacity; doubles with each pass
};

}  // namespace tensormem

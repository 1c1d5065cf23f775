// Owns: the exact search: whether a component fits under a capacity, by depth-first search with restarts. Each run has
// its own taste (which items like to lie low) and a limit of steps; moments where earlier runs ended badly are looked
// at first by some. A run that ends by itself is an answer. Must not know: greedy plans, clocks beyond `PlanWatch`.
//
// A step: of the moments, the one with the least to waste. Of the items there the one that can end first, or, as long
// as there is one near it that can end before, that one. Somebody who lives together with it has to begin before that
// end, or it could sink: so one of those that may be placed lower than that end is, and each is tried and then
// forbidden. Where no open item crosses a cut in time, the two sides are searched on their own.
#pragma once

#include "plan/plan_random.hpp"
#include "plan/plan_watch.hpp"
#include "plan/search_state.hpp"

namespace tensormem {

enum class Answer : std::uint8_t { found, impossible, unknown };

class ExactSearch {
 public:
  ExactSearch(const PlanItems& items, const Cliques& cliques, std::uint64_t seed);

  // Tries `runs` runs. With `found`, `offsets()` is a plan under the capacity.
  Answer look(std::int64_t capacity, int runs, PlanWatch& watch);
  const Offsets& offsets() const { return state_.lowest(); }

 private:
  void choose_taste();
  Answer run(std::int64_t capacity, std::uint64_t limit);
  bool solve(std::int32_t first, std::int32_t last);
  bool solve_parts(std::int32_t first, std::int32_t last);
  // The item to place next, kNobody if nobody can be, kDone if all are.
  std::int32_t choose(std::int32_t first, std::int32_t last) const;
  std::int32_t critical_moment(std::int32_t first, std::int32_t last) const;
  std::int32_t first_to_end_near(std::int32_t item) const;
  bool is_out_of_steps();

  static constexpr std::int32_t kNobody = -1;
  static constexpr std::int32_t kDone = -2;

  SearchState state_;
  PlanRandom random_;
  PlanWatch* watch_ = nullptr;
  std::vector<double> taste_;  // of each item: the greater, the rather it is placed
  bool by_failures_ = false;
  std::uint64_t runs_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t limit_ = 0;
  bool stopped_ = false;
};

}  // namespace tensormem

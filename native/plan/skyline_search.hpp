// Owns: a search for plans that waste next to nothing. The skyline of a partial packing has valleys; at the foot of a
// valley's wall either an item begins that starts (or ends) exactly there and fits between the walls, or memory is
// wasted. Where capacity is tight that leaves few items to try, and `LevelCheck` refuses most of those. The valley with
// the fewest is gone on with; dead ends are remembered by key; runs are short at first and start over with another
// order of the items. It finds plans and proves nothing: keys may collide. Must not know: greedy plans, exact proofs.
#pragma once

#include "plan/level_check.hpp"
#include "plan/plan_random.hpp"
#include "plan/plan_watch.hpp"

namespace tensormem {

class SkylineSearch {
 public:
  SkylineSearch(const PlanItems& items, const Cliques& cliques, std::uint64_t seed);

  // Takes about so many steps. True when `offsets()` is a plan under the capacity.
  bool look(std::int64_t capacity, std::uint64_t steps, PlanWatch& watch);
  const Offsets& offsets() const { return skyline_.offsets(); }

 private:
  // The foot of a wall: the moments of a valley, and whether its left or its right end is meant.
  struct Foot {
    std::int32_t first = 0;
    std::int32_t last = 0;
    bool left = true;
    std::int32_t moment() const { return left ? first : last; }
  };
  struct Choice {
    Foot foot;
    double cost = -1;  // negative: none yet
    bool is_dead = false;
  };

  void choose_order();
  bool solve_parts(std::int32_t first, std::int32_t last);
  bool solve(std::int32_t first, std::int32_t last);
  bool try_items(const Foot& foot, std::int32_t first, std::int32_t last);
  double appeal(std::int32_t item, const Foot& foot, std::int32_t first, std::int32_t last) const;
  bool try_waste(const Foot& foot, std::int32_t first, std::int32_t last);
  Choice choose(std::int32_t first, std::int32_t last);
  // False when nothing better can come: a dead end, or only one way to go on.
  bool consider(const Foot& foot, std::int32_t first, std::int32_t last, Choice* best);
  bool is_valley(const Foot& foot, std::int32_t first, std::int32_t last) const;
  const std::vector<std::int32_t>& at_foot(const Foot& foot) const;
  bool may_begin(std::int32_t item, const Foot& foot, std::int32_t first, std::int32_t last);
  // The least height above the foot at which an item could begin there, if none begins at the foot.
  std::int64_t least_waste(const Foot& foot, std::int32_t first, std::int32_t last) const;
  std::uint64_t* dead_end(std::int32_t first, std::int32_t last, std::uint64_t* key);
  bool is_out_of_steps();

  Skyline skyline_;
  LevelCheck level_;
  PlanRandom random_;
  std::vector<double> taste_;             // the greater, the earlier an item is tried
  std::vector<double> failures_;          // how often a moment was a dead end
  std::vector<std::uint64_t> dead_ends_;  // keys, by their last bits
  PlanWatch* watch_ = nullptr;
  std::uint64_t runs_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t limit_ = 0;
  bool weighs_failures_ = false;
  double level_counts_ = 0;
  double span_counts_ = 0;
  bool stopped_ = false;
};

}  // namespace tensormem

// Owns: time, cut down to what matters: the moments at which a set of items lives that no other moment contains. Two
// items collide exactly when they share such a moment, and each item lives through an unbroken run of them. There are
// at most as many as items. Must not know: where anything is placed.
#pragma once

#include "plan/plan_item.hpp"

namespace tensormem {

struct Cliques {
  explicit Cliques(const PlanItems& items);

  std::size_t count = 0;
  std::vector<std::int32_t> first;  // of each item
  std::vector<std::int32_t> last;   // of each item, inclusive
  std::vector<std::int64_t> load;   // of each moment: the sum of the sizes that live then
  std::vector<std::int64_t> worst;  // of each item: the greatest load that it lives through

  bool is_valid(const PlanItems& items) const;
  std::int64_t bound() const;  // no plan is lower than the greatest load
};

}  // namespace tensormem

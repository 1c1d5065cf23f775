// Owns: the fast way: items in some order, each into a gap that is free over its whole life. The portfolio is a handful
// of orders, each with the lowest and with the tightest gap. Must not know: time limits, exactness.
#pragma once

#include "plan/cliques.hpp"
#include "plan/occupancy.hpp"
#include "plan/plan_item.hpp"

namespace tensormem {

enum class Fit : std::uint8_t { lowest, tightest };

struct Placement {
  Offsets offsets;
  std::int64_t height = 0;
};

class Greedy {
 public:
  Greedy(const PlanItems& items, const Cliques& cliques);

  using Order = std::vector<std::int32_t>;
  void place(const Order& order, Fit fit, Placement* out);
  // The same, as long as everything lies below `ceiling`: how many turns went well, all of them or those before the
  // first item that did not fit.
  std::size_t place_below(const Order& order, Fit fit, std::int64_t ceiling, Placement* out);

  static constexpr int kOrders = 9;
  Order order(int number) const;

 private:
  const PlanItems& items_;
  const Cliques& cliques_;
  Occupancy occupancy_;
};

}  // namespace tensormem

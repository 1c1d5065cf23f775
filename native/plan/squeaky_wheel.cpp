#include "plan/squeaky_wheel.hpp"

#include <algorithm>
#include <utility>

namespace tensormem {

namespace {

// How much worse than the best an order may be and still be gone on from: a little, to get out of dead ends.
constexpr double kLenience = 0.01;

}  // namespace

void SqueakyWheel::improve(Greedy::Order order, Fit fit, std::int64_t goal, int rounds, PlanWatch& watch,
                           Placement* best) {
  Greedy::Order best_order = order;
  Placement tried = *best;
  for (int round = 0; round < rounds && best->height > goal && !watch.is_over(); ++round) {
    Greedy::Order next = with_earlier_turns(order, tried, goal);
    greedy_.place(next, fit, &tried);
    ++watch.progress.steps;
    if (tried.height < best->height) {
      *best = tried;
      best_order = next;
    }
    const double lenient = static_cast<double>(best->height) * (1 + kLenience);
    if (static_cast<double>(tried.height) <= lenient) {
      order = std::move(next);
    } else {
      order = best_order;
      tried = *best;
    }
  }
}

Greedy::Order SqueakyWheel::with_earlier_turns(const Greedy::Order& order, const Placement& tried, std::int64_t goal) {
  std::vector<std::pair<double, std::int32_t>> turns;
  turns.reserve(order.size());
  const double reach = random_.unit();
  for (std::size_t turn = 0; turn < order.size(); ++turn) {
    const std::int32_t item = order[turn];
    auto at = static_cast<double>(turn);
    if (tried.offsets[item] + items_[item].size > goal) at *= 1 - reach * random_.unit();
    turns.emplace_back(at, item);
  }
  std::ranges::sort(turns);
  Greedy::Order next;
  next.reserve(order.size());
  for (const auto& [at, item] : turns) next.push_back(item);
  return next;
}

}  // namespace tensormem

#include "plan/greedy.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace tensormem {

Greedy::Greedy(const PlanItems& items, const Cliques& cliques)
    : items_(items), cliques_(cliques), occupancy_(cliques.count) {}

void Greedy::place(const Order& order, Fit fit, Placement* out) {
  (void)place_below(order, fit, std::numeric_limits<std::int64_t>::max(), out);
}

std::size_t Greedy::place_below(const Order& order, Fit fit, std::int64_t ceiling, Placement* out) {
  occupancy_.clear();
  out->offsets.assign(items_.size(), 0);
  out->height = 0;
  for (std::size_t turn = 0; turn < order.size(); ++turn) {
    const std::int32_t i = order[turn];
    const std::int32_t first = cliques_.first[i];
    const std::int32_t last = cliques_.last[i];
    const std::int64_t size = items_[i].size;
    const std::int64_t offset =
        fit == Fit::lowest ? occupancy_.first_fit(first, last, size) : occupancy_.best_fit(first, last, size);
    if (offset > ceiling - size) return turn;
    occupancy_.take(first, last, offset, size);
    out->offsets[i] = offset;
    out->height = std::max(out->height, offset + size);
  }
  return order.size();
}

Greedy::Order Greedy::order(int number) const {
  using Key = std::array<double, 3>;
  // The largest key goes first. "worst" is the greatest load that an item lives through.
  const auto key = [&](std::int32_t i) -> Key {
    const auto size = static_cast<double>(items_[i].size);
    const auto span = static_cast<double>(cliques_.last[i] - cliques_.first[i] + 1);
    const auto life = static_cast<double>(items_[i].upper - items_[i].lower);
    const auto worst = static_cast<double>(cliques_.worst[i]);
    switch (number) {
      case 0:
        return {size, life};
      case 1:
        return {size * life, size};
      case 2:
        return {life, size};
      case 3:
        return {worst, span, size};
      case 4:
        return {worst, size, span};
      case 5:
        return {size * span, worst};
      case 6:
        return {span, size};
      case 7:
        return {static_cast<double>(-cliques_.first[i]), span, size};
      default:
        return {worst * worst * size * span};
    }
  };
  std::vector<std::pair<Key, std::int32_t>> keys;
  keys.reserve(items_.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i) keys.emplace_back(key(i), i);
  std::ranges::sort(
      keys, [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  Order ordered;
  ordered.reserve(keys.size());
  for (const auto& each : keys) ordered.push_back(each.second);
  return ordered;
}

}  // namespace tensormem

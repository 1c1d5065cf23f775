#include "plan/peak_stack.hpp"

#include <algorithm>
#include <array>

namespace tensormem {

namespace {

constexpr int kTries = 48;  // for one ceiling

}  // namespace

PeakStack::PeakStack(const PlanItems& items, const Cliques& cliques, Greedy& greedy)
    : items_(items),
      cliques_(cliques),
      greedy_(greedy),
      peak_(static_cast<std::int32_t>(std::ranges::max_element(cliques.load) - cliques.load.begin())) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (lives_at_peak(static_cast<std::int32_t>(i))) peak_time_ = std::max(peak_time_, items[i].lower);
  }
}

bool PeakStack::lives_at_peak(std::int32_t item) const {
  return cliques_.first[item] <= peak_ && peak_ <= cliques_.last[item];
}

void PeakStack::improve(std::int64_t goal, PlanWatch& watch, Placement* best) {
  constexpr std::array<Way, 8> kWays = {
      {{3, 0.95}, {0.3, 0.95}, {3, 0.8}, {0.3, 0.8}, {1, 0.95}, {10, 0.95}, {0.1, 0.95}, {1, 0.6}}};
  const Greedy::Order turns = order(kWays[turn_]);
  turn_ = (turn_ + 1) % kWays.size();
  for (const std::int64_t part : {64, 16, 8, 4, 2}) {
    const std::int64_t above = best->height - goal;
    if (above <= 0 || watch.is_over()) return;
    Placement lower;
    if (reach(turns, goal + above / part, watch, &lower)) *best = std::move(lower);
  }
}

bool PeakStack::reach(Greedy::Order order, std::int64_t ceiling, PlanWatch& watch, Placement* out) {
  for (int tries = 0; tries < kTries && !watch.is_over(); ++tries) {
    const std::size_t fitted = greedy_.place_below(order, Fit::lowest, ceiling, out);
    ++watch.progress.steps;
    if (fitted == order.size()) return true;
    if (fitted == 0) return false;
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(fitted / 2);
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(fitted);
    std::rotate(begin, end, end + 1);
  }
  return false;
}

Greedy::Order PeakStack::order(const Way& way) const {
  using Key = std::array<double, 4>;  // the largest goes first
  const std::int64_t highest = cliques_.load[static_cast<std::size_t>(peak_)];
  const auto key = [&](std::int32_t i) -> Key {
    const auto size = static_cast<double>(items_[i].size);
    const auto worst = static_cast<double>(cliques_.worst[i]);
    const auto life = static_cast<double>(items_[i].upper - items_[i].lower);
    if (worst < way.hot * static_cast<double>(highest)) return {0, size, worst, life};
    if (!lives_at_peak(i)) return {1, worst, life, size};
    const auto before = static_cast<double>(peak_time_ - items_[i].lower);
    const auto after = static_cast<double>(items_[i].upper - peak_time_);
    return {1, worst, after + way.before * before, size};
  };
  std::vector<std::pair<Key, std::int32_t>> keys;
  keys.reserve(items_.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i) keys.emplace_back(key(i), i);
  std::ranges::sort(
      keys, [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  Greedy::Order ordered;
  ordered.reserve(keys.size());
  for (const auto& each : keys) ordered.push_back(each.second);
  return ordered;
}

}  // namespace tensormem

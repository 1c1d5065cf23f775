#include "plan/plan_check.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace tensormem {

namespace {

struct Step {
  std::int64_t time = 0;
  bool starts = false;
  std::size_t item = 0;
  // At one moment, what ends goes before what begins: lifetimes are half-open.
  bool operator<(const Step& other) const { return std::pair(time, starts) < std::pair(other.time, other.starts); }
};

bool lies_within(const PlanItem& item, std::int64_t offset, std::int64_t height) {
  return item.lower < item.upper && item.size > 0 && offset >= 0 && item.size <= height && offset <= height - item.size;
}

// Enters [offset, end) unless it meets a place that is in use.
bool enter(std::map<std::int64_t, std::int64_t>& places, std::int64_t offset, std::int64_t end) {
  const auto above = places.lower_bound(offset);
  if (above != places.end() && above->first < end) return false;
  if (above != places.begin() && std::prev(above)->second > offset) return false;
  places.emplace_hint(above, offset, end);
  return true;
}

}  // namespace

bool plan_is_sound(const PlanItems& items, const Offsets& offsets, std::int64_t height) {
  if (items.size() != offsets.size()) return false;
  std::vector<Step> steps;
  steps.reserve(2 * items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!lies_within(items[i], offsets[i], height)) return false;
    steps.push_back({items[i].lower, true, i});
    steps.push_back({items[i].upper, false, i});
  }
  std::ranges::sort(steps, std::less{});
  std::map<std::int64_t, std::int64_t> places;
  for (const Step& step : steps) {
    const std::int64_t offset = offsets[step.item];
    if (!step.starts) places.erase(offset);
    if (step.starts && !enter(places, offset, offset + items[step.item].size)) return false;
  }
  return true;
}

}  // namespace tensormem

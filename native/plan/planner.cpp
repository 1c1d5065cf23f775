#include "plan/planner.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/invariant.hpp"
#include "plan/component.hpp"
#include "plan/plan_check.hpp"

namespace tensormem {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

using Components = std::vector<std::unique_ptr<Component>>;

Status check_options(const PlanOptions& options) {
  if (options.capacity < 0) return Status::fail(Code::invalid_size, "a capacity is not negative", options.capacity);
  const bool is_aligned = options.alignment > 0 && (options.alignment & (options.alignment - 1)) == 0;
  if (!is_aligned || options.alignment > kMostBytes)
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two", options.alignment);
  return {};
}

// Whole multiples of the alignment, with the sum in range.
Status round_sizes(PlanItems& items, std::int64_t alignment) {
  std::int64_t sum = 0;
  for (PlanItem& item : items) {
    if (item.size <= 0) return Status::fail(Code::invalid_size, "an item has at least one byte", item.size);
    if (item.lower >= item.upper) return Status::fail(Code::invalid_argument, "an item ends after it begins");
    if (item.upper > kMostBytes || item.lower < -kMostBytes)
      return Status::fail(Code::invalid_argument, "times are within 62 bits");
    if (item.size > kMostBytes - alignment)
      return Status::fail(Code::invalid_size, "too large to add the alignment to", item.size);
    item.size = (item.size + alignment - 1) / alignment * alignment;
    if (sum > kMostBytes - item.size)
      return Status::fail(Code::invalid_size, "all items together are over 62 bits", item.size);
    sum += item.size;
  }
  return {};
}

std::int64_t common_unit(const PlanItems& items) {
  std::int64_t unit = 0;
  for (const PlanItem& item : items) unit = std::gcd(unit, item.size);
  return std::max<std::int64_t>(unit, 1);
}

// Items that are tied together by others that live at the same time; sizes in units.
Components split(const PlanItems& items, std::int64_t unit, std::uint64_t seed) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return items[i].lower; });
  Components components;
  std::vector<std::size_t> numbers;
  std::int64_t end = 0;
  const auto close = [&] {
    if (numbers.empty()) return;
    std::ranges::sort(numbers);  // the caller's order, which breaks ties
    PlanItems part;
    for (const std::size_t i : numbers) part.push_back({items[i].lower, items[i].upper, items[i].size / unit});
    components.push_back(std::make_unique<Component>(std::move(part), std::move(numbers), seed));
    numbers = {};
  };
  for (const std::size_t i : order) {
    if (!numbers.empty() && items[i].lower >= end) close();
    end = numbers.empty() ? items[i].upper : std::max(end, items[i].upper);
    numbers.push_back(i);
  }
  close();
  return components;
}

struct Planning {
  Components components;
  std::int64_t unit = 1;
  std::int64_t goal = 0;  // in units
  bool only_goal = false;

  std::int64_t bound() const {
    std::int64_t most = 0;
    for (const auto& each : components) most = std::max(most, each->bound());
    return most;
  }
  std::int64_t height() const {
    std::int64_t most = 0;
    for (const auto& each : components) most = std::max(most, each->best().height);
    return most;
  }
  void tell(PlanWatch& watch) const {
    watch.progress.bound = bound() * unit;
    watch.progress.height = height() * unit;
  }
  void run(PlanWatch& watch) {
    tell(watch);
    for (const auto& each : components) each->try_greedy(goal, watch);
    tell(watch);
    // Nobody has to be lower than the highest has to be.
    for (bool busy = true; busy && !watch.is_over();) {
      busy = false;
      for (const auto& each : components) {
        if (!watch.is_over()) busy |= each->work(std::max(goal, bound()), only_goal, watch);
        tell(watch);
      }
    }
  }
};

void collect(const Planning& planning, PlanResult* result) {
  for (const auto& each : planning.components) {
    TM_WALK(each->is_valid());
    for (std::size_t i = 0; i < each->numbers().size(); ++i)
      result->offsets[each->numbers()[i]] = each->best().offsets[i] * planning.unit;
  }
  result->height = planning.height() * planning.unit;
  result->bound = planning.bound() * planning.unit;
  result->is_optimal = result->height == result->bound;
}

}  // namespace

Status make_plan(PlanItems items, const PlanOptions& options, PlanWatch::Watcher watcher, PlanResult* result) {
  TM_TRY(check_options(options));
  TM_TRY(round_sizes(items, options.alignment));
  PlanWatch watch(options.seconds, std::move(watcher));
  *result = {};
  result->offsets.assign(items.size(), 0);
  Planning planning{.components = {}, .unit = common_unit(items)};
  planning.components = split(items, planning.unit, options.seed);
  planning.only_goal = options.capacity != 0;
  planning.goal = options.capacity / planning.unit;
  planning.run(watch);
  collect(planning, result);
  result->was_cancelled = watch.was_cancelled();
  result->seconds = watch.seconds();
  result->steps = watch.progress.steps;
  if (!plan_is_sound(items, result->offsets, result->height))
    return Status::fail(Code::internal_error, "the planner let two items collide; no plan is given");
  return {};
}

}  // namespace tensormem

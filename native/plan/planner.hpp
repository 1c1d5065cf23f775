// Owns: a plan from start to end: sizes in units, components that never live at once, the portfolio of greedy orders,
// their improvement, the exact search, and the check without which no plan is handed out. Must not know: Python, files,
// memory.
#pragma once

#include "base/status.hpp"
#include "plan/plan_item.hpp"
#include "plan/plan_watch.hpp"

namespace tensormem {

struct PlanOptions {
  std::int64_t capacity = 0;   // low enough; 0: as low as the time allows
  std::int64_t alignment = 1;  // every offset is a multiple, and every item takes a multiple
  double seconds = 5;
  std::uint64_t seed = 1;
};

struct PlanResult {
  Offsets offsets;
  std::int64_t height = 0;
  std::int64_t bound = 0;
  bool is_optimal = false;  // proven: no plan is lower
  bool was_cancelled = false;
  double seconds = 0;
  std::uint64_t steps = 0;
};

// Fails when an item has no size or no life, or when all of them together do not fit in 62 bits.
Status make_plan(PlanItems items, const PlanOptions& options, PlanWatch::Watcher watcher, PlanResult* result);

}  // namespace tensormem

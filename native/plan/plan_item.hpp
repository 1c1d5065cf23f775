// Owns: what a planner packs: a piece of memory that lives from `lower` up to and without `upper`, and where it went.
// Must not know: bytes or clocks. Times and sizes are numbers in units of the caller's; offsets are in those of sizes.
#pragma once

#include <cstdint>
#include <vector>

namespace tensormem {

struct PlanItem {
  std::int64_t lower = 0;
  std::int64_t upper = 0;
  std::int64_t size = 0;
};

using PlanItems = std::vector<PlanItem>;
using Offsets = std::vector<std::int64_t>;  // one per item

}  // namespace tensormem

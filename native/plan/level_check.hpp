// Owns: a necessary condition at a boundary in time. What crosses it lies above everything that starts or ends there,
// so below the first item that crosses, both sides have to come level: some of the items that start behind the boundary
// and some of those that end before it make up the difference, but for what may be wasted. Sums of subsets decide, and
// answers are remembered, because most boundaries do not change from step to step. Must not know: the order of steps.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/skyline.hpp"

namespace tensormem {

class LevelCheck {
 public:
  explicit LevelCheck(const Skyline& skyline);

  // Whether an open item may be placed at this offset, by what its two boundaries allow. False is a proof, but for
  // colliding keys; first and last are the part of time that is looked at.
  bool allows(std::int32_t item, std::int64_t offset, std::int32_t first, std::int32_t last);

 private:
  struct Range {
    std::int64_t least = 0;
    std::int64_t most = 0;
  };

  bool can_level(std::int32_t boundary, std::int64_t before, std::int64_t behind, std::int32_t item);
  bool has_difference(std::int32_t boundary, Range range, std::int32_t item);
  // False when there are too many to look at.
  bool gather_sums(const std::vector<std::int32_t>& items, std::int32_t without, std::vector<std::int64_t>& sums) const;

  const Skyline& skyline_;
  std::vector<std::uint64_t> answers_;  // by key, the lowest bit is the answer
  std::vector<std::int64_t> starting_;
  std::vector<std::int64_t> ending_;
};

}  // namespace tensormem

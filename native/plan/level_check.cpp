#include "plan/level_check.hpp"

#include <algorithm>
#include <bit>

#include "plan/plan_random.hpp"

namespace tensormem {

namespace {

constexpr std::size_t kMostAnswers = std::size_t{1} << 16;
constexpr std::size_t kAnswersOfAnItem = 128;
constexpr std::size_t kMostSums = 4096;

}  // namespace

LevelCheck::LevelCheck(const Skyline& skyline)
    : skyline_(skyline),
      answers_(std::bit_ceil(std::min(kMostAnswers, kAnswersOfAnItem * skyline.items().size())), ~std::uint64_t{0}) {}

bool LevelCheck::allows(std::int32_t item, std::int64_t offset, std::int32_t first, std::int32_t last) {
  const std::int32_t start = skyline_.cliques().first[item];
  const std::int32_t end = skyline_.cliques().last[item];
  const std::int64_t top = offset + skyline_.items()[item].size;
  if (start > first && !can_level(start - 1, skyline_.height(start - 1), top, item)) return false;
  return end >= last || can_level(end, top, skyline_.height(end + 1), item);
}

bool LevelCheck::can_level(std::int32_t boundary, std::int64_t before, std::int64_t behind, std::int32_t item) {
  if (!skyline_.is_crossed(boundary)) return true;
  const std::int64_t difference = before - behind;
  const Range range = {difference - skyline_.slack(boundary + 1), difference + skyline_.slack(boundary)};
  if (range.least <= 0 && range.most >= 0) return true;
  std::uint64_t key = PlanRandom(skyline_.key_without(boundary, item) + static_cast<std::uint64_t>(boundary)).next();
  key = PlanRandom(key ^ static_cast<std::uint64_t>(range.least)).next();
  key = PlanRandom(key ^ static_cast<std::uint64_t>(range.most)).next();
  std::uint64_t& answer = answers_[(key >> 1) % answers_.size()];
  if (answer >> 1 == key >> 1) return (answer & 1) != 0;
  const bool found = has_difference(boundary, range, item);
  answer = (key & ~std::uint64_t{1}) | (found ? 1 : 0);
  return found;
}

bool LevelCheck::has_difference(std::int32_t boundary, Range range, std::int32_t item) {
  if (!gather_sums(skyline_.starting(boundary + 1), item, starting_)) return true;
  if (!gather_sums(skyline_.ending(boundary), item, ending_)) return true;
  std::ranges::sort(starting_);
  std::ranges::sort(ending_);
  std::size_t at = 0;
  for (const std::int64_t sum : starting_) {
    while (at < ending_.size() && ending_[at] < sum - range.most) ++at;
    if (at < ending_.size() && ending_[at] <= sum - range.least) return true;
  }
  return false;
}

bool LevelCheck::gather_sums(const std::vector<std::int32_t>& items, std::int32_t without,
                             std::vector<std::int64_t>& sums) const {
  sums.assign(1, 0);
  for (const std::int32_t item : items) {
    if (item == without || !skyline_.is_open(item)) continue;
    const std::size_t count = sums.size();
    if (count > kMostSums / 2) return false;
    for (std::size_t k = 0; k < count; ++k) sums.push_back(sums[k] + skyline_.items()[item].size);
  }
  return true;
}

}  // namespace tensormem

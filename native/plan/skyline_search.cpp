#include "plan/skyline_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tensormem {

namespace {

constexpr std::uint64_t kStepsOfARun = 500;
constexpr int kLongestRun = 12;           // as a power of two of the shortest
constexpr std::uint64_t kLookEvery = 64;  // steps between looks at the clock
constexpr std::size_t kMostDeadEnds = std::size_t{1} << 18;
constexpr std::size_t kDeadEndsOfAnItem = 512;
constexpr std::int64_t kNever = INT64_MAX;

}  // namespace

SkylineSearch::SkylineSearch(const PlanItems& items, const Cliques& cliques, std::uint64_t seed)
    : skyline_(items, cliques, seed),
      level_(skyline_),
      random_(seed),
      taste_(items.size()),
      failures_(cliques.count, 1.0),
      dead_ends_(std::bit_ceil(std::min(kMostDeadEnds, kDeadEndsOfAnItem * items.size())), 0) {}

bool SkylineSearch::look(std::int64_t capacity, std::uint64_t steps, PlanWatch& watch) {
  if (capacity < skyline_.cliques().bound()) return false;
  watch_ = &watch;
  std::ranges::fill(dead_ends_, 0);
  for (std::uint64_t taken = 0; taken < steps && !watch.is_over(); taken += steps_) {
    choose_order();
    skyline_.begin(capacity);
    steps_ = 0;
    stopped_ = false;
    // Many short runs and few long ones: every other run is twice as long, every fourth four times.
    limit_ = kStepsOfARun << (runs_ <= 2 ? 2 : std::min(std::countr_zero(runs_), kLongestRun));
    if (solve_parts(0, skyline_.moments() - 1)) return true;
    if (!stopped_) return false;  // nothing is left to try
  }
  return false;
}

// How much the length and the size of an item count, by chance; the first run is not left to chance.
void SkylineSearch::choose_order() {
  const bool first = runs_++ == 0;
  weighs_failures_ = runs_ % 2 == 0;
  const double length_counts = first ? 1 : 2 * random_.unit();
  const double size_counts = first ? 1 : 2 * random_.unit();
  const double noise = first ? 0 : 3 * random_.unit();
  level_counts_ = first ? 4 : 8 * random_.unit();
  span_counts_ = first ? 2 : 4 * random_.unit();
  const Cliques& cliques = skyline_.cliques();
  for (std::size_t i = 0; i < taste_.size(); ++i) {
    const double length = std::log2(static_cast<double>(cliques.last[i] - cliques.first[i] + 1));
    const double size = std::log2(static_cast<double>(skyline_.items()[i].size));
    taste_[i] = length_counts * length + size_counts * size + noise * (random_.unit() - 0.5);
  }
}

// What no open item crosses is searched on its own.
bool SkylineSearch::solve_parts(std::int32_t first, std::int32_t last) {
  std::int32_t start = first;
  for (std::int32_t t = first; t <= last; ++t) {
    if (t != last && skyline_.is_crossed(t)) continue;
    if (!solve(start, t)) return false;
    start = t + 1;
  }
  return true;
}

// On success everything in the range is placed. Otherwise all is as it was, unless the run was stopped.
bool SkylineSearch::solve(std::int32_t first, std::int32_t last) {
  std::int32_t open = first;
  while (open <= last && skyline_.is_finished(open)) ++open;
  if (open > last) return true;
  if (is_out_of_steps()) return false;
  std::uint64_t key = 0;
  std::uint64_t* const dead = dead_end(first, last, &key);
  if (*dead == key) return false;
  const Choice choice = choose(first, last);
  if (!choice.is_dead) {
    if (try_items(choice.foot, first, last) || (!stopped_ && try_waste(choice.foot, first, last))) return true;
    if (stopped_) return false;
  }
  *dead = key;
  return false;
}

bool SkylineSearch::try_items(const Foot& foot, std::int32_t first, std::int32_t last) {
  const std::size_t before = skyline_.mark();
  const std::int64_t offset = skyline_.height(foot.moment());
  std::vector<std::int32_t> candidates;
  for (const std::int32_t item : at_foot(foot))
    if (may_begin(item, foot, first, last)) candidates.push_back(item);
  const Cliques& cliques = skyline_.cliques();
  std::ranges::sort(candidates, [&](std::int32_t a, std::int32_t b) {
    return appeal(a, foot, first, last) > appeal(b, foot, first, last);
  });
  const auto is_like = [&](std::int32_t a, std::int32_t b) {
    return skyline_.items()[a].size == skyline_.items()[b].size && cliques.first[a] == cliques.first[b] &&
           cliques.last[a] == cliques.last[b];
  };
  for (auto item = candidates.begin(); item != candidates.end(); ++item) {
    if (std::any_of(candidates.begin(), item, [&](std::int32_t other) { return is_like(other, *item); })) continue;
    skyline_.place(*item, offset);
    if (solve_parts(first, last)) return true;
    if (stopped_) return false;
    skyline_.undo(before);
  }
  return false;
}

// What ends level with a wall, or fills the valley from wall to wall, leaves a skyline that is easier to go on with.
double SkylineSearch::appeal(std::int32_t item, const Foot& foot, std::int32_t first, std::int32_t last) const {
  const bool at_left = skyline_.cliques().first[item] == foot.first;
  const bool at_right = skyline_.cliques().last[item] == foot.last;
  const std::int64_t top = skyline_.height(foot.first) + skyline_.items()[item].size;
  double appeal = taste_[item];
  if (at_left && foot.first > first && skyline_.height(foot.first - 1) == top) appeal += level_counts_;
  if (at_right && foot.last < last && skyline_.height(foot.last + 1) == top) appeal += level_counts_;
  if (at_left && at_right) appeal += span_counts_;
  return appeal;
}

bool SkylineSearch::try_waste(const Foot& foot, std::int32_t first, std::int32_t last) {
  const std::int64_t waste = least_waste(foot, first, last);
  if (waste > skyline_.slack(foot.moment())) return false;
  const std::size_t before = skyline_.mark();
  skyline_.raise(foot.moment(), waste);
  if (solve_parts(first, last)) return true;
  if (!stopped_) skyline_.undo(before);
  return false;
}

SkylineSearch::Choice SkylineSearch::choose(std::int32_t first, std::int32_t last) {
  Choice best;
  for (Foot foot{first, first, true}; foot.first <= last; foot.first = foot.last + 1) {
    foot.last = foot.first;
    if (skyline_.is_finished(foot.first)) continue;
    while (foot.last < last && !skyline_.is_finished(foot.last + 1) &&
           skyline_.height(foot.last + 1) == skyline_.height(foot.first))
      ++foot.last;
    if (!is_valley(foot, first, last)) continue;
    for (const bool left : {true, false})
      if (!consider({foot.first, foot.last, left}, first, last, &best)) return best;
  }
  return best;
}

bool SkylineSearch::consider(const Foot& foot, std::int32_t first, std::int32_t last, Choice* best) {
  const bool can_waste = skyline_.slack(foot.moment()) > 0;
  double ways = can_waste ? 0.75 : 0;
  for (const std::int32_t item : at_foot(foot))
    if (may_begin(item, foot, first, last)) ways += 1;
  if (ways == 0) {
    failures_[foot.moment()] += 1;
    best->is_dead = true;
    return false;
  }
  const double cost = weighs_failures_ ? ways / failures_[foot.moment()] : ways;
  if (best->cost < 0 || cost < best->cost || ways <= 1) *best = {foot, cost, false};
  return ways > 1;
}

bool SkylineSearch::is_valley(const Foot& foot, std::int32_t first, std::int32_t last) const {
  const auto is_wall = [&](std::int32_t moment) {
    return moment < first || moment > last || skyline_.is_finished(moment) ||
           skyline_.height(moment) > skyline_.height(foot.first);
  };
  return is_wall(foot.first - 1) && is_wall(foot.last + 1);
}

const std::vector<std::int32_t>& SkylineSearch::at_foot(const Foot& foot) const {
  return foot.left ? skyline_.starting(foot.first) : skyline_.ending(foot.last);
}

bool SkylineSearch::may_begin(std::int32_t item, const Foot& foot, std::int32_t first, std::int32_t last) {
  const Cliques& cliques = skyline_.cliques();
  return skyline_.is_open(item) && cliques.first[item] >= foot.first && cliques.last[item] <= foot.last &&
         level_.allows(item, skyline_.height(foot.moment()), first, last);
}

// It would begin on a wall, together with what crosses that, or on another item of the valley.
std::int64_t SkylineSearch::least_waste(const Foot& foot, std::int32_t first, std::int32_t last) const {
  std::int64_t least = kNever;
  const std::int64_t height = skyline_.height(foot.moment());
  if (foot.first > first && skyline_.is_crossed(foot.first - 1))
    least = std::min(least, skyline_.height(foot.first - 1) - height);
  if (foot.last < last && skyline_.is_crossed(foot.last))
    least = std::min(least, skyline_.height(foot.last + 1) - height);
  const Cliques& cliques = skyline_.cliques();
  for (std::int32_t t = foot.first; t <= foot.last; ++t) {
    for (const std::int32_t item : skyline_.starting(t)) {
      const bool at_the_foot = foot.left ? t == foot.first : cliques.last[item] == foot.last;
      if (skyline_.is_open(item) && cliques.last[item] <= foot.last && !at_the_foot)
        least = std::min(least, skyline_.items()[item].size);
    }
  }
  return least;
}

std::uint64_t* SkylineSearch::dead_end(std::int32_t first, std::int32_t last, std::uint64_t* key) {
  const auto range = static_cast<std::uint64_t>(first) << 32 | static_cast<std::uint64_t>(last);
  *key = PlanRandom(skyline_.key() ^ PlanRandom(range).next()).next();
  return &dead_ends_[*key % dead_ends_.size()];
}

bool SkylineSearch::is_out_of_steps() {
  ++steps_;
  ++watch_->progress.steps;
  stopped_ = steps_ > limit_ || (steps_ % kLookEvery == 0 && watch_->is_over());
  return stopped_;
}

}  // namespace tensormem

#include "plan/exact_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tensormem {

namespace {

constexpr std::uint64_t kStepsOfARun = 500;
constexpr int kLongestRun = 12;           // as a power of two of the shortest
constexpr std::uint64_t kLookEvery = 64;  // steps between looks at the clock

}  // namespace

ExactSearch::ExactSearch(const PlanItems& items, const Cliques& cliques, std::uint64_t seed)
    : state_(items, cliques), random_(seed), taste_(items.size()) {}

Answer ExactSearch::look(std::int64_t capacity, int runs, PlanWatch& watch) {
  watch_ = &watch;
  for (int each = 0; each < runs && !watch.is_over(); ++each) {
    choose_taste();
    ++runs_;
    // Many short runs and few long ones: every other run is twice as long, every fourth four times.
    const int longer = runs_ <= 2 ? 2 : std::min(std::countr_zero(runs_), kLongestRun);
    const Answer answer = run(capacity, kStepsOfARun << longer);
    if (answer != Answer::unknown) return answer;
  }
  return Answer::unknown;
}

// How long an item lives, how large it is, how full its fullest moment is: how much each counts, by chance. Where the
// fullest moment decides alone and length breaks ties, the hardest moments are stacked without gaps first.
void ExactSearch::choose_taste() {
  const Cliques& cliques = state_.cliques();
  const double kind = random_.unit();
  const bool fullest_first = runs_ == 0 || (runs_ > 1 && kind < 0.25);
  const double length_counts = runs_ == 1 ? 1 : 4 * random_.unit();
  const double size_counts = runs_ == 1 ? 1 : 2 * random_.unit();
  const double fullness_counts = runs_ == 1 ? 0 : 20 * random_.unit();
  const double noise = runs_ < 2 ? 0 : (fullest_first ? 0.2 : 2.0) * random_.unit();
  by_failures_ = runs_ > 1 && random_.unit() < 0.25;
  const double bound = std::log(static_cast<double>(cliques.bound()));
  for (std::size_t i = 0; i < taste_.size(); ++i) {
    const double length = std::log(static_cast<double>(cliques.last[i] - cliques.first[i] + 1));
    const double fullness = std::log(static_cast<double>(cliques.worst[i])) - bound;
    const double size = std::log(static_cast<double>(state_.items()[i].size));
    const double chance = noise * (random_.unit() - 0.5);
    const PlanItem& item = state_.items()[i];
    const double life = std::log(static_cast<double>(item.upper - item.lower));
    taste_[i] = fullest_first ? 1e6 * fullness + life + 1e-3 * size + chance
                              : fullness_counts * fullness + length_counts * length + size_counts * size + chance;
  }
}

Answer ExactSearch::run(std::int64_t capacity, std::uint64_t limit) {
  steps_ = 0;
  limit_ = limit;
  stopped_ = false;
  if (!state_.begin(capacity)) return Answer::impossible;
  if (solve_parts(0, static_cast<std::int32_t>(state_.cliques().count) - 1)) return Answer::found;
  return stopped_ ? Answer::unknown : Answer::impossible;
}

// On success everything in the range is placed. Otherwise all is as it was, unless the run was stopped.
bool ExactSearch::solve(std::int32_t first, std::int32_t last) {
  const std::size_t entry = state_.mark();
  for (;;) {
    const std::int32_t item = choose(first, last);
    if (item == kDone) return true;
    if (item != kNobody && is_out_of_steps()) return false;
    const std::size_t before = state_.mark();
    if (item != kNobody && state_.place(item) && solve_parts(first, last)) return true;
    if (stopped_) return false;
    state_.take_back(before);
    if (item == kNobody || !state_.forbid(item)) {
      state_.take_back(entry);
      return false;
    }
  }
}

bool ExactSearch::solve_parts(std::int32_t first, std::int32_t last) {
  std::int32_t start = first;
  for (std::int32_t t = first; t <= last; ++t) {
    if (t != last && !state_.is_cut(t)) continue;
    if (!solve(start, t)) return false;
    start = t + 1;
  }
  return true;
}

std::int32_t ExactSearch::choose(std::int32_t first, std::int32_t last) const {
  const std::int32_t moment = critical_moment(first, last);
  if (moment < 0) return kDone;
  const std::int32_t pressing = first_to_end_near(state_.first_to_end(moment));
  const std::int64_t end = state_.lowest(pressing) + state_.items()[pressing].size;
  std::int32_t best = kNobody;
  for (std::int32_t t = state_.cliques().first[pressing]; t <= state_.cliques().last[pressing]; ++t) {
    const SearchState::Open here = state_.open(t);
    for (std::int32_t k = 0; k < here.count; ++k) {
      const std::int32_t item = here.begin[k];
      const bool can = state_.lowest(item) < end && state_.may_place(item);
      if (can && (best == kNobody || taste_[item] > taste_[best])) best = item;
    }
  }
  return best;
}

std::int32_t ExactSearch::critical_moment(std::int32_t first, std::int32_t last) const {
  std::int32_t critical = -1;
  double most = 0;
  for (std::int32_t t = first; t <= last; ++t) {
    if (state_.open(t).count == 0) continue;
    const double pressure = by_failures_ ? state_.failures(t) : -static_cast<double>(state_.slack(t));
    if (critical < 0 || pressure > most) {
      critical = t;
      most = pressure;
    }
  }
  return critical;
}

// Whoever begins before the item's end, at any moment that the item lives through, must not lie on one that ends
// before.
std::int32_t ExactSearch::first_to_end_near(std::int32_t item) const {
  const Cliques& cliques = state_.cliques();
  for (;;) {
    std::int64_t end = state_.lowest(item) + state_.items()[item].size;
    std::int32_t first = cliques.first[item];
    std::int32_t last = cliques.last[item];
    for (std::int32_t t = cliques.first[item]; t <= cliques.last[item]; ++t) {
      const SearchState::Open here = state_.open(t);
      for (std::int32_t k = 0; k < here.count; ++k) {
        const std::int32_t other = here.begin[k];
        if (state_.lowest(other) >= end) continue;
        first = std::min(first, cliques.first[other]);
        last = std::max(last, cliques.last[other]);
      }
    }
    const std::int32_t before = item;
    for (std::int32_t t = first; t <= last; ++t) {
      if (state_.open(t).count == 0 || state_.first_end(t) >= end) continue;
      end = state_.first_end(t);
      item = state_.first_to_end(t);
    }
    if (item == before) return item;
  }
}

bool ExactSearch::is_out_of_steps() {
  ++steps_;
  ++watch_->progress.steps;
  stopped_ = steps_ > limit_ || (steps_ % kLookEvery == 0 && watch_->is_over());
  return stopped_;
}

}  // namespace tensormem

#include "plan/component.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "plan/plan_check.hpp"

namespace tensormem {

namespace {

constexpr int kRoundsOfATurn = 6;
constexpr std::uint64_t kSkylineSteps = 20'000;  // for each run of the exact search
constexpr std::size_t kFew = 500;    // items, up to which the exact search does better than stacking at the peak
constexpr std::size_t kMany = 4000;  // items, from which on looking for the tightest gap takes too long at first
// Beyond this many places of items in moments a step of the exact search costs too much.
constexpr std::int64_t kMostSeats = 400'000;
// Which orders are worth improving, best first: not those that begin lowest, but those that improve most.
constexpr std::array<std::pair<int, Fit>, 7> kStarts = {{{3, Fit::lowest},
                                                         {3, Fit::tightest},
                                                         {3, Fit::lowest},
                                                         {0, Fit::lowest},
                                                         {5, Fit::tightest},
                                                         {7, Fit::tightest},
                                                         {2, Fit::tightest}}};

std::int64_t seats(const Cliques& cliques) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < cliques.first.size(); ++i) sum += cliques.last[i] - cliques.first[i] + 1;
  return sum;
}

}  // namespace

Component::Component(PlanItems items, std::vector<std::size_t> numbers, std::uint64_t seed)
    : items_(std::move(items)),
      numbers_(std::move(numbers)),
      cliques_(items_),
      greedy_(items_, cliques_),
      wheel_(items_, greedy_, seed),
      stack_(items_, cliques_, greedy_),
      bound_(cliques_.bound()) {
  if (seats(cliques_) > kMostSeats) return;
  skyline_ = std::make_unique<SkylineSearch>(items_, cliques_, seed);
  search_ = std::make_unique<ExactSearch>(items_, cliques_, seed);
}

bool Component::is_valid() const {
  if (!cliques_.is_valid(items_) || numbers_.size() != items_.size() || bound_ < cliques_.bound()) return false;
  if (best_.offsets.empty()) return true;
  return bound_ <= best_.height && plan_is_sound(items_, best_.offsets, best_.height);
}

void Component::try_greedy(std::int64_t goal, PlanWatch& watch) {
  for (int number = 0; number < Greedy::kOrders; ++number) {
    const Greedy::Order order = greedy_.order(number);
    for (const Fit fit : {Fit::lowest, Fit::tightest}) {
      if (fit == Fit::tightest && items_.size() > kMany) continue;
      Placement placement;
      greedy_.place(order, fit, &placement);
      ++watch.progress.steps;
      keep(placement);
      if (best_.height <= std::max(goal, bound_) || watch.is_over()) return;
    }
    if (items_.size() > kMany) stack_.improve(std::max(goal, bound_), watch, &best_);
  }
}

bool Component::work(std::int64_t goal, bool only_goal, PlanWatch& watch) {
  if (best_.height <= std::max(goal, bound_)) return false;
  if (searches_next_ && search_ != nullptr) {
    search(goal, only_goal, watch);
  } else {
    improve(goal, watch);
  }
  searches_next_ = !searches_next_;
  return best_.height > std::max(goal, bound_);
}

// From the start each time, by other chances: what gets somewhere gets there within a few rounds.
void Component::improve(std::int64_t goal, PlanWatch& watch) {
  stacks_next_ = !stacks_next_ && items_.size() > kFew;
  if (stacks_next_) return stack_.improve(std::max(goal, bound_), watch, &best_);
  const auto [number, fit] = kStarts[turn_];
  turn_ = (turn_ + 1) % kStarts.size();
  Placement placement;
  const Greedy::Order order = greedy_.order(number);
  greedy_.place(order, fit, &placement);
  wheel_.improve(order, fit, std::max(goal, bound_), kRoundsOfATurn, watch, &placement);
  keep(placement);
}

void Component::search(std::int64_t goal, bool only_goal, PlanWatch& watch) {
  const std::int64_t target = next_target(goal, only_goal);
  if (skyline_->look(target, kSkylineSteps * static_cast<std::uint64_t>(runs_), watch)) {
    keep_found(skyline_->offsets());
    return;
  }
  switch (search_->look(target, runs_, watch)) {
    case Answer::impossible:
      bound_ = target + 1;
      break;
    case Answer::unknown:
      undecided_ = target;
      break;
    case Answer::found:
      keep_found(search_->offsets());
  }
}

void Component::keep_found(const Offsets& offsets) {
  Placement found{offsets, 0};
  for (std::size_t i = 0; i < items_.size(); ++i)
    found.height = std::max(found.height, found.offsets[i] + items_[i].size);
  keep(found);
}

// The lowest that is not known to be impossible; where that stays open, halfway up to the best plan, and so on.
std::int64_t Component::next_target(std::int64_t goal, bool only_goal) {
  const std::int64_t least = std::max(goal, bound_);
  const std::int64_t most = best_.height - 1;
  if (undecided_ < least && undecided_ >= 0) undecided_ = -1;
  if (undecided_ < 0) return least;
  if (undecided_ < most && !only_goal) return undecided_ + (most - undecided_ + 1) / 2;
  undecided_ = -1;
  runs_ *= runs_ < (1 << 20) ? 2 : 1;
  return least;
}

void Component::keep(const Placement& placement) {
  if (best_.offsets.empty() || placement.height < best_.height) best_ = placement;
}

}  // namespace tensormem

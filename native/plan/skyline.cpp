#include "plan/skyline.hpp"

#include "base/invariant.hpp"
#include "plan/plan_random.hpp"

namespace tensormem {

Skyline::Skyline(const PlanItems& items, const Cliques& cliques, std::uint64_t seed)
    : items_(items), cliques_(cliques), starting_(cliques.count), ending_(cliques.count) {
  PlanRandom random(seed);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items.size()); ++i) {
    starting_[cliques.first[i]].push_back(i);
    ending_[cliques.last[i]].push_back(i);
    item_keys_.push_back(random.next());
  }
}

void Skyline::begin(std::int64_t capacity) {
  capacity_ = capacity;
  height_.assign(cliques_.count, 0);
  rest_.assign(cliques_.count, 0);
  crossing_.assign(cliques_.count, 0);
  boundary_keys_.assign(cliques_.count, 0);
  open_.assign(items_.size(), 0);
  offsets_.assign(items_.size(), 0);
  trail_.clear();
  key_ = 0;
  slack_ = cliques_.load;
  for (std::int64_t& each : slack_) each = capacity - each;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i) toggle(i, true, 0);
}

void Skyline::place(std::int32_t item, std::int64_t offset) {
  TM_ASSERT(is_open(item));
  trail_.push_back({item, true, offset});
  offsets_[item] = offset;
  toggle(item, false, offset + items_[item].size);
}

void Skyline::raise(std::int32_t moment, std::int64_t by) {
  TM_ASSERT(by > 0 && by <= slack_[moment]);
  trail_.push_back({moment, false, height_[moment]});
  key_ ^= waste_key(moment, slack_[moment]);
  height_[moment] += by;
  slack_[moment] -= by;
  key_ ^= waste_key(moment, slack_[moment]);
}

void Skyline::undo(std::size_t mark) {
  while (trail_.size() > mark) {
    const Step step = trail_.back();
    trail_.pop_back();
    if (step.is_item) {
      toggle(step.index, true, step.height);
      continue;
    }
    key_ ^= waste_key(step.index, slack_[step.index]);
    slack_[step.index] += height_[step.index] - step.height;
    height_[step.index] = step.height;
    key_ ^= waste_key(step.index, slack_[step.index]);
  }
}

void Skyline::toggle(std::int32_t item, bool open, std::int64_t height) {
  const std::int32_t first = cliques_.first[item];
  const std::int32_t last = cliques_.last[item];
  const std::int32_t change = open ? 1 : -1;
  open_[item] = open ? 1 : 0;
  for (std::int32_t t = first; t <= last; ++t) {
    height_[t] = height;
    rest_[t] += change;
    if (t < last) crossing_[t] += change;
  }
  key_ ^= item_keys_[item];
  if (first > 0) boundary_keys_[first - 1] ^= item_keys_[item];
  boundary_keys_[last] ^= item_keys_[item];
}

std::uint64_t Skyline::waste_key(std::int32_t moment, std::int64_t slack) {
  return PlanRandom(static_cast<std::uint64_t>(slack) * 0xc2b2ae3d27d4eb4fULL ^ static_cast<std::uint64_t>(moment))
      .next();
}

bool Skyline::is_valid() const {
  std::vector<std::int64_t> load(height_.size(), 0);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i)
    for (std::int32_t t = cliques_.first[i]; t <= cliques_.last[i]; ++t) load[t] += is_open(i) ? items_[i].size : 0;
  for (std::size_t t = 0; t < height_.size(); ++t)
    if (slack_[t] < 0 || height_[t] + load[t] + slack_[t] != capacity_) return false;
  return true;
}

}  // namespace tensormem

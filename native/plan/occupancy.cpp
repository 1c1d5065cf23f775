#include "plan/occupancy.hpp"

#include <algorithm>
#include <limits>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

constexpr std::int64_t kOpen = std::numeric_limits<std::int64_t>::max();  // the gap above everything has no end

}  // namespace

Occupancy::Occupancy(std::size_t moments) : moments_(static_cast<std::int32_t>(moments)) {
  std::size_t leaves = 1;
  while (leaves < moments) leaves *= 2;
  nodes_.resize(2 * leaves);
}

void Occupancy::clear() {
  TM_WALK(is_valid());
  for (Node& node : nodes_) {
    node.over.clear();
    node.below.clear();
  }
}

std::int64_t Occupancy::first_fit(std::int32_t first, std::int32_t last, std::int64_t size) {
  cursors_.clear();
  collect(1, 0, moments_ - 1, first, last);
  std::int64_t from = 0;
  for (;;) {
    const std::int64_t end = next_gap(&from);
    if (end == kOpen || end - from >= size) return from;
    from = end;
  }
}

std::int64_t Occupancy::best_fit(std::int32_t first, std::int32_t last, std::int64_t size) {
  cursors_.clear();
  collect(1, 0, moments_ - 1, first, last);
  std::int64_t from = 0;
  std::int64_t best = -1;
  std::int64_t smallest = kOpen;
  for (;;) {
    const std::int64_t end = next_gap(&from);
    if (end == kOpen) return best < 0 ? from : best;
    if (end - from >= size && end - from < smallest) {
      smallest = end - from;
      best = from;
    }
    if (smallest == size) return best;
    from = end;
  }
}

// Runs are in order and apart, and what lies over a node is part of what lies at or below it.
bool Occupancy::is_valid() const {
  const auto in_order = [](const Runs& runs) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].first >= runs[i].second || (i != 0 && runs[i].first <= runs[i - 1].second)) return false;
    }
    return true;
  };
  for (const Node& node : nodes_) {
    if (!in_order(node.over) || !in_order(node.below)) return false;
    for (const Run& run : node.over) {
      const auto around = std::ranges::lower_bound(node.below, run.second, {}, &Run::second);
      if (around == node.below.end() || around->first > run.first) return false;
    }
  }
  return true;
}

void Occupancy::take(std::int32_t first, std::int32_t last, std::int64_t offset, std::int64_t size) {
  take(1, 0, moments_ - 1, first, last, {offset, offset + size});
}

void Occupancy::add(Runs& runs, Run run) {
  // Runs that touch become one.
  const auto begin = std::ranges::lower_bound(runs, run.first, {}, &Run::second);
  auto end = begin;
  while (end != runs.end() && end->first <= run.second) ++end;
  if (begin == end) {
    runs.insert(begin, run);
    return;
  }
  *begin = {std::min(begin->first, run.first), std::max(std::prev(end)->second, run.second)};
  runs.erase(std::next(begin), end);
}

void Occupancy::take(std::size_t node, std::int32_t low, std::int32_t high, std::int32_t first, std::int32_t last,
                     Run run) {
  add(nodes_[node].below, run);
  if (first <= low && high <= last) {
    add(nodes_[node].over, run);
    return;
  }
  const std::int32_t middle = low + (high - low) / 2;
  if (first <= middle) take(2 * node, low, middle, first, last, run);
  if (last > middle) take(2 * node + 1, middle + 1, high, first, last, run);
}

void Occupancy::collect(std::size_t node, std::int32_t low, std::int32_t high, std::int32_t first, std::int32_t last) {
  if (first <= low && high <= last) {
    look_at(nodes_[node].below);
    return;
  }
  if (nodes_[node].below.empty()) return;
  look_at(nodes_[node].over);
  const std::int32_t middle = low + (high - low) / 2;
  if (first <= middle) collect(2 * node, low, middle, first, last);
  if (last > middle) collect(2 * node + 1, middle + 1, high, first, last);
}

void Occupancy::look_at(const Runs& runs) {
  if (!runs.empty()) cursors_.push_back({runs.data(), runs.data() + runs.size()});
}

std::int64_t Occupancy::next_gap(std::int64_t* from) {
  std::int64_t at = *from;
  std::int64_t end = kOpen;
  // Round and round until nobody moves it up any more: every list then starts above `at`.
  for (std::size_t still = 0, i = 0; still < cursors_.size(); i = i + 1 == cursors_.size() ? 0 : i + 1) {
    Cursor& cursor = cursors_[i];
    while (cursor.at != cursor.end && cursor.at->second <= at) ++cursor.at;
    if (cursor.at != cursor.end && cursor.at->first <= at) {
      at = cursor.at->second;
      still = 0;
    } else {
      ++still;
    }
  }
  for (const Cursor& cursor : cursors_) {
    if (cursor.at != cursor.end) end = std::min(end, cursor.at->first);
  }
  *from = at;
  return end;
}

}  // namespace tensormem

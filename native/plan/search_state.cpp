#include "plan/search_state.hpp"

#include <algorithm>

#include "base/invariant.hpp"

namespace tensormem {

SearchState::SearchState(const PlanItems& items, const Cliques& cliques)
    : items_(items), cliques_(cliques), starts_(cliques.count + 1), failures_(cliques.count, 1.0) {
  std::int64_t seats = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    seat_base_.push_back(seats - cliques.first[i]);
    seats += cliques.last[i] - cliques.first[i] + 1;
    for (std::int32_t t = cliques.first[i]; t <= cliques.last[i]; ++t) ++starts_[t + 1];
  }
  for (std::size_t t = 0; t < cliques.count; ++t) starts_[t + 1] += starts_[t];
  members_.resize(static_cast<std::size_t>(seats));
  seats_.resize(static_cast<std::size_t>(seats));
}

bool SearchState::begin(std::int64_t capacity) {
  capacity_ = capacity;
  lowest_.assign(items_.size(), 0);
  support_.assign(items_.size(), 0);
  crossing_.assign(cliques_.count, 0);
  at_.assign(cliques_.count, {});
  queued_.assign(cliques_.count, 0);
  trail_.clear();
  saved_.clear();
  queue_.clear();
  touched_.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i) {
    for (std::int32_t t = cliques_.first[i]; t <= cliques_.last[i]; ++t) {
      const std::int32_t seat = at_[t].open++;
      members_[starts_[t] + seat] = i;
      seats_[seat_base_[i] + t] = seat;
      at_[t].rest += items_[i].size;
      if (t < cliques_.last[i]) ++crossing_[t];
    }
  }
  for (std::int32_t t = 0; t < static_cast<std::int32_t>(cliques_.count); ++t) queue(t);
  return settle();
}

bool SearchState::place(std::int32_t item) {
  TM_ASSERT(may_place(item));
  const std::int64_t top = lowest_[item] + items_[item].size;
  trail_.push_back({Kind::placed, item, 0});
  remove(item);
  for (std::int32_t t = cliques_.first[item]; t <= cliques_.last[item]; ++t) {
    queue(t);
    const Open here = open(t);
    for (std::int32_t k = 0; k < here.count; ++k) {
      const std::int32_t other = here.begin[k];
      if (support_[other] < top) {
        trail_.push_back({Kind::support, other, support_[other]});
        support_[other] = top;
      }
      if (!raise(other, top)) {
        failures_[t] += 1;
        return false;
      }
    }
  }
  return settle();
}

// It lies on something that is not placed yet, then.
bool SearchState::forbid(std::int32_t item) {
  const std::int64_t end = end_below(item);
  return end != kNever && raise(item, std::max(end, lowest_[item] + 1)) && settle();
}

void SearchState::take_back(std::size_t mark) {
  while (trail_.size() > mark) {
    const Entry entry = trail_.back();
    trail_.pop_back();
    switch (entry.kind) {
      case Kind::lowest:
        lowest_[entry.index] = entry.old;
        break;
      case Kind::support:
        support_[entry.index] = entry.old;
        break;
      case Kind::placed:
        put_back(entry.index);
        break;
      case Kind::moment: {
        // What is open and how much of it was put back by then, or will be, by its own entry.
        const Moment now = at_[entry.index];
        at_[entry.index] = saved_.back();
        at_[entry.index].open = now.open;
        at_[entry.index].rest = now.rest;
        saved_.pop_back();
        break;
      }
    }
  }
  for (const std::int32_t t : queue_) queued_[t] = 0;
  queue_.clear();
  touched_.clear();
}

bool SearchState::raise(std::int32_t item, std::int64_t to) {
  if (lowest_[item] >= to) return true;
  if (to > capacity_ - items_[item].size) return false;
  trail_.push_back({Kind::lowest, item, lowest_[item]});
  lowest_[item] = to;
  for (std::int32_t t = cliques_.first[item]; t <= cliques_.last[item]; ++t) queue(t);
  return true;
}

void SearchState::queue(std::int32_t moment) {
  if (queued_[moment] != 0) return;
  queued_[moment] = 1;
  queue_.push_back(moment);
}

// One look at what floats after the rest is settled: to look until nothing moves would let two that float climb on one
// another, step by step.
bool SearchState::settle() { return settle_queue() && settle_floating() && settle_queue(); }

bool SearchState::settle_queue() {
  while (!queue_.empty()) {
    const std::int32_t moment = queue_.back();
    queue_.pop_back();
    queued_[moment] = 0;
    touched_.push_back(moment);
    if (!settle_moment(moment)) {
      failures_[moment] += 1;
      return false;
    }
  }
  return true;
}

// An item that may not lie where it could will lie on one that is not placed yet.
bool SearchState::settle_floating() {
  std::vector<std::int32_t> moments;
  moments.swap(touched_);
  for (const std::int32_t t : moments) {
    const Open here = open(t);
    for (std::int32_t k = 0; k < here.count; ++k) {
      const std::int32_t item = here.begin[k];
      if (may_place(item)) continue;
      const std::int64_t end = end_below(item);
      if (end == kNever || !raise(item, end)) {
        failures_[t] += 1;
        return false;
      }
    }
  }
  return true;
}

bool SearchState::settle_moment(std::int32_t moment) {
  const Open here = open(moment);
  if (here.count == 0) return true;
  const std::int64_t limit = capacity_ - at_[moment].rest;  // who cannot lie this low is not the next one here
  std::int64_t end_of_next = kNever;
  Moment now = {.rest = at_[moment].rest, .lowest = kNever, .open = here.count};
  for (std::int32_t k = 0; k < here.count; ++k) {
    const std::int32_t item = here.begin[k];
    const std::int64_t end = lowest_[item] + items_[item].size;
    if (lowest_[item] <= limit) end_of_next = std::min(end_of_next, end);
    now.lowest = std::min(now.lowest, lowest_[item]);
    if (end < now.first_end) {
      now.second_end = now.first_end;
      now.first_end = end;
      now.first_to_end = item;
    } else {
      now.second_end = std::min(now.second_end, end);
    }
  }
  if (end_of_next == kNever) return false;
  save(moment);
  at_[moment] = now;
  for (std::int32_t k = 0; k < here.count; ++k) {
    const std::int32_t item = here.begin[k];
    if (lowest_[item] > limit && !raise(item, end_of_next)) return false;
  }
  return has_room(here, limit);
}

// Those that start late, one on top of the other from the latest down, have to end in time.
bool SearchState::has_room(const Open& open, std::int64_t limit) {
  late_.clear();
  for (std::int32_t k = 0; k < open.count; ++k) {
    const std::int32_t item = open.begin[k];
    if (lowest_[item] > limit) late_.emplace_back(-lowest_[item], items_[item].size);
  }
  std::ranges::sort(late_);
  std::int64_t sum = 0;
  for (const auto& [minus_lowest, size] : late_) {
    sum += size;
    if (sum - minus_lowest > capacity_) return false;
  }
  return true;
}

// The earliest end of an item not placed that lives together with this one.
std::int64_t SearchState::end_below(std::int32_t item) const {
  std::int64_t end = kNever;
  for (std::int32_t t = cliques_.first[item]; t <= cliques_.last[item]; ++t)
    end = std::min(end, at_[t].first_to_end == item ? at_[t].second_end : at_[t].first_end);
  return end;
}

void SearchState::remove(std::int32_t item) {
  for (std::int32_t t = cliques_.first[item]; t <= cliques_.last[item]; ++t) {
    std::int32_t& seat = seats_[seat_base_[item] + t];
    const std::int32_t end = --at_[t].open;
    const std::int32_t other = members_[starts_[t] + end];
    std::swap(members_[starts_[t] + seat], members_[starts_[t] + end]);
    std::swap(seat, seats_[seat_base_[other] + t]);
    at_[t].rest -= items_[item].size;
    if (t < cliques_.last[item]) --crossing_[t];
  }
}

// Steps are taken back in the reverse order, so it sits just behind those not placed.
void SearchState::put_back(std::int32_t item) {
  for (std::int32_t t = cliques_.first[item]; t <= cliques_.last[item]; ++t) {
    TM_ASSERT(members_[starts_[t] + at_[t].open] == item);
    ++at_[t].open;
    at_[t].rest += items_[item].size;
    if (t < cliques_.last[item]) ++crossing_[t];
  }
}

void SearchState::save(std::int32_t moment) {
  trail_.push_back({Kind::moment, moment, 0});
  saved_.push_back(at_[moment]);
}

bool SearchState::is_valid() const {
  for (std::int32_t t = 0; t < static_cast<std::int32_t>(cliques_.count); ++t) {
    std::int64_t rest = 0;
    const Open here = open(t);
    for (std::int32_t k = 0; k < here.count; ++k) {
      const std::int32_t item = here.begin[k];
      rest += items_[item].size;
      if (seats_[seat_base_[item] + t] != k || lowest_[item] < support_[item]) return false;
    }
    if (rest != at_[t].rest) return false;
  }
  return true;
}

}  // namespace tensormem

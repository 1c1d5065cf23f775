#include "pool/fair_share.hpp"

#include <algorithm>
#include <numeric>

namespace tensormem {

namespace {

thread_local const AskingScope* t_innermost = nullptr;

__extension__ using Wide = unsigned __int128;  // a room of 64 bits times a weight

std::uint64_t part_of(std::uint64_t room, std::uint64_t weight, std::uint64_t weights) {
  return static_cast<std::uint64_t>(static_cast<Wide>(room) * weight / weights);
}

std::uint64_t demand_of(const Claimant& claimant, std::uint64_t more) {
  return std::min(add_saturated(claimant.used, more), std::max(claimant.maximum, claimant.used));
}

std::uint64_t room_above_guarantees(const std::vector<Claimant>& claimants, std::uint64_t limit) {
  std::uint64_t guaranteed = 0;
  for (const Claimant& each : claimants) guaranteed = add_saturated(guaranteed, each.guaranteed);
  return limit - std::min(limit, guaranteed);
}

struct Hungry {
  std::size_t who;
  std::uint64_t want;  // above its guarantee
};

// Pours `room` over the hungry by weight. Whoever has enough leaves, and what it did not need is poured again.
void pour(std::uint64_t room, std::vector<Hungry> hungry, const std::vector<Claimant>& claimants,
          std::vector<std::uint64_t>* shares) {
  while (!hungry.empty()) {
    std::uint64_t weights = 0;
    for (const Hungry& each : hungry) weights += claimants[each.who].priority;
    std::uint64_t taken = 0;
    const auto level = [&](const Hungry& each) { return part_of(room, claimants[each.who].priority, weights); };
    const auto full =
        std::partition(hungry.begin(), hungry.end(), [&](const Hungry& each) { return each.want > level(each); });
    if (full == hungry.end()) {
      for (const Hungry& each : hungry) (*shares)[each.who] += level(each);
      return;
    }
    for (auto each = full; each != hungry.end(); ++each) {
      (*shares)[each->who] += each->want;
      taken += each->want;
    }
    room -= taken;
    hungry.erase(full, hungry.end());
  }
}

}  // namespace

std::vector<std::uint64_t> fair_shares(const std::vector<Claimant>& claimants, std::uint64_t limit,
                                       std::size_t requester, std::uint64_t bytes) {
  std::vector<std::uint64_t> shares;
  std::vector<Hungry> hungry;
  for (std::size_t i = 0; i < claimants.size(); ++i) {
    const Claimant& each = claimants[i];
    const std::uint64_t demand = demand_of(each, i == requester ? bytes : 0);
    shares.push_back(each.guaranteed);
    if (demand > each.guaranteed) hungry.push_back({i, demand - each.guaranteed});
  }
  pour(room_above_guarantees(claimants, limit), std::move(hungry), claimants, &shares);
  return shares;
}

std::vector<Ask> whom_to_ask(const std::vector<Claimant>& claimants, std::uint64_t limit, std::size_t requester,
                             std::uint64_t bytes, std::uint64_t shortage, AskRound round) {
  const std::vector<std::uint64_t> shares = fair_shares(claimants, limit, requester, bytes);
  const auto above = [&](std::size_t i) {
    const std::uint64_t use = add_saturated(claimants[i].used, i == requester ? bytes : 0);
    return use - std::min(use, shares[i]);
  };
  const bool last = round == AskRound::last_resort;
  if (last && (requester == kNobody || above(requester) != 0)) return {};
  const auto floor_of = [&](std::size_t i) {
    const Claimant& each = claimants[i];
    if (i == requester || (last && each.priority < claimants[requester].priority)) return each.guaranteed;
    return std::max(each.guaranteed, shares[i]);
  };
  std::vector<Ask> asks;
  for (std::size_t i = 0; i < claimants.size(); ++i) {
    const std::uint64_t floor = floor_of(i);
    if (claimants[i].can_be_asked && claimants[i].used > floor)
      asks.push_back({std::min(shortage, claimants[i].used - floor), i});
  }
  const auto comes_last = [&](std::size_t i) { return i == requester && above(i) == 0; };
  std::stable_sort(asks.begin(), asks.end(), [&](const Ask& a, const Ask& b) {
    if (comes_last(a.who) != comes_last(b.who)) return comes_last(b.who);
    if (claimants[a.who].priority != claimants[b.who].priority)
      return claimants[a.who].priority < claimants[b.who].priority;
    return above(a.who) > above(b.who);
  });
  return asks;
}

AskingScope::AskingScope(const void* arbiter) noexcept : arbiter_(arbiter), outer_(t_innermost) { t_innermost = this; }

AskingScope::~AskingScope() { t_innermost = outer_; }

bool is_asking(const void* arbiter) noexcept {
  for (const AskingScope* each = t_innermost; each != nullptr; each = each->outer_)
    if (each->arbiter_ == arbiter) return true;
  return false;
}

}  // namespace tensormem

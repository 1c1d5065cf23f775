#include "ledger/budget_members.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/invariant.hpp"
#include "base/wait.hpp"

namespace tensormem {

BudgetMembers::BudgetMembers() : process_(getpid()) {}

BudgetMembers::~BudgetMembers() {
  TM_WALK(is_valid());
  TM_ASSERT(entries_.empty());
}

// By serial, none of which was given twice.
bool BudgetMembers::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t before = 0;
  for (const Entry& each : entries_) {
    if (each.member == nullptr || each.serial <= before || each.serial >= next_serial_) return false;
    before = each.serial;
  }
  return true;
}

bool BudgetMembers::empty() const noexcept {
  const std::lock_guard lock(mutex_);
  return entries_.empty();
}

std::uint64_t BudgetMembers::release(std::uint64_t wanted) noexcept {
  const Turn turn(*this);
  std::uint64_t released = 0;
  for (Entry at = after(0); at.member != nullptr && released < wanted; at = after(at.serial)) {
    released += at.member->release_idle(wanted - released);
  }
  return released;
}

void BudgetMembers::add(BudgetMember& member) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({&member, next_serial_++});
}

void BudgetMembers::remove(BudgetMember& member) noexcept {
  const Turn turn(*this);
  (void)member.release_idle(~0ULL >> 1);
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& each) { return each.member == &member; });
}

BudgetMembers::Entry BudgetMembers::after(std::uint64_t serial) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto next = std::ranges::upper_bound(entries_, serial, {}, &Entry::serial);
  return next == entries_.end() ? Entry{} : *next;
}

void BudgetMembers::begin_turn() noexcept {
  const auto take = [this]() noexcept {
    const auto here = static_cast<std::int64_t>(getpid());
    const std::lock_guard lock(mutex_);
    // The thread that had the turn when this process was forked is not in it.
    if (std::exchange(process_, here) != here) turn_taken_.store(0);
    return turn_taken_.exchange(1) == 0;
  };
  if (take()) return;
  // Only the end of the process ends it without the turn: who has it then comes back no more.
  (void)Wait::until_done()
      .by_asking([&](bool* taken) {
        *taken = take();
        return Status();
      })
      .ok();
}

void BudgetMembers::end_turn() noexcept { turn_taken_.store(0); }

void BudgetMembership::add(BudgetMembers& members, BudgetMember& member) {
  joined_.reserve(joined_.size() + 1);
  members.add(member);
  joined_.push_back(&members);
  member_ = &member;
}

void BudgetMembership::end() noexcept {
  for (BudgetMembers* const members : joined_) members->remove(*member_);
  joined_.clear();
}

}  // namespace tensormem

// Owns: who holds memory of a budget that nobody uses, and how they are asked for it when a claim does not fit. A
// member is asked without any lock of ours, from whatever thread claims. One asks at a time, so that none takes for
// missing what another is just bringing back; a member that leaves waits for its turn like those who ask.
// Must not know: what a member keeps, or how much of a budget is used.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"

namespace tensormem {

class BudgetMember {
 public:
  virtual ~BudgetMember() = default;
  // Gives back memory that nobody uses, about `wanted` bytes of it (at least that much if it has it, and little more);
  // says how many bytes went. Any thread. It must not claim.
  virtual std::uint64_t release_idle(std::uint64_t wanted) noexcept = 0;
};

class BudgetMembers {
 public:
  BudgetMembers();
  ~BudgetMembers();
  BudgetMembers(const BudgetMembers&) = delete;
  BudgetMembers& operator=(const BudgetMembers&) = delete;

  bool empty() const noexcept;
  bool is_valid() const noexcept;
  // Asks one after the other, the oldest first, for what is still missing: `shortage()` is asked before each, and says
  // 0 when nothing is. All are asked again until a whole round brought nothing. Hold no lock.
  template <typename Shortage>
  void release_until(Shortage&& shortage) noexcept {
    const Turn turn(*this);
    for (int round = 0; round < kMostRounds; ++round) {
      std::uint64_t released = 0;
      for (Entry at = after(0); at.member != nullptr; at = after(at.serial)) {
        const std::uint64_t wanted = shortage();
        if (wanted == 0) return;
        released += at.member->release_idle(wanted);
      }
      if (released == 0) return;
    }
  }
  // About `wanted` bytes; says how many went. Hold no lock.
  std::uint64_t release(std::uint64_t wanted) noexcept;

 private:
  friend class BudgetMembership;
  struct Entry {
    BudgetMember* member = nullptr;
    std::uint64_t serial = 0;
  };
  // While one lives, nobody else asks, and nobody leaves.
  class Turn {
   public:
    explicit Turn(BudgetMembers& members) noexcept : members_(members) { members_.begin_turn(); }
    ~Turn() { members_.end_turn(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    BudgetMembers& members_;
  };
  // What others return and take meanwhile could keep a claim going for ever.
  static constexpr int kMostRounds = 64;

  void add(BudgetMember& member);  // throws bad_alloc
  void remove(BudgetMember& member) noexcept;
  Entry after(std::uint64_t serial) const noexcept;
  void begin_turn() noexcept;
  void end_turn() noexcept;

  mutable std::mutex mutex_;  // never held while anybody is asked
  ForkGuard fork_guard_{mutex_};
  std::vector<Entry> entries_;  // by serial
  std::uint64_t next_serial_ = 1;
  std::int64_t process_;  // whose thread has the turn
  // No lock: it is held while members take theirs, which are younger (see ForkGuard).
  std::atomic<std::uint32_t> turn_taken_{0};
};

// One member's places in the lists of budgets. Whoever has one ends it first of all: from then on nobody asks it any
// more.
class BudgetMembership {
 public:
  BudgetMembership() = default;
  ~BudgetMembership() { end(); }
  BudgetMembership(const BudgetMembership&) = delete;
  BudgetMembership& operator=(const BudgetMembership&) = delete;

  // `members` must outlive it: hold the budget. Throws bad_alloc.
  void add(BudgetMembers& members, BudgetMember& member);
  // Brings back what the member keeps, so that no claim misses it, and waits for those who are asking. Hold no lock.
  void end() noexcept;

 private:
  std::vector<BudgetMembers*> joined_;
  BudgetMember* member_ = nullptr;
};

}  // namespace tensormem

// Owns: one process's part in a budget that several processes share: claims that together never pass the limit, nor
// that of their job; asks for memory back in both directions, and the thread that hears them. First everybody is asked
// for what nobody uses, which costs nobody anything; then those above their fair share for what they would miss.
//   A claim is published first, then compared with what all others use and want: of two that race for the last room at
//   least one sees the other. The one in the later slot steps back and tries again. No lock is held between processes,
//   so one that is stopped or killed in the middle of a claim keeps its own bytes from the others and nothing else.
// Must not know: the layout of the file, pages, Python.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork_guard.hpp"
#include "pool/ledger_sums.hpp"
#include "pool/ledger_table.hpp"
#include "pool/tenant_budgets.hpp"

namespace tensormem {

struct LedgerHooks {
  GiveBackHook idle = nullptr;   // gives back what nobody uses and no member of the budget knows of
  GiveBackHook evict = nullptr;  // gives back what somebody would miss; null: it is not asked for that
};

class LedgerListener;

class SharedLedger final : public Budget {
 public:
  // A thread hears the others, but for a participant that may have nothing.
  static Status join(LedgerTablePtr table, std::string_view name, const LedgerTerms& terms, LedgerHooks hooks,
                     std::shared_ptr<SharedLedger>* ledger);
  ~SharedLedger() override;
  SharedLedger(const SharedLedger&) = delete;
  SharedLedger& operator=(const SharedLedger&) = delete;

  Status claim(std::uint64_t bytes) noexcept override;
  Status try_claim(std::uint64_t bytes) noexcept override;
  void give_back(std::uint64_t bytes) noexcept override;
  std::uint64_t limit() const noexcept override;
  // Its own part.
  std::uint64_t used() const noexcept override;
  std::uint64_t peak() const noexcept { return mine().peak.load(); }

  // Leaves the others: its place is free and it can claim no more. Refused while it uses something.
  Status leave();
  bool has_left() const;
  // The limit of all. Not below what is guaranteed; lowered below what is used, all are asked to give back.
  Status set_limit(std::uint64_t limit);
  std::uint64_t shared_limit() const { return table_->header().limit.load(); }
  // Those that live: the dead are found and their share returned first.
  std::vector<Participant> participants();
  int fd() const { return table_->fd(); }
  const LedgerTerms& terms() const { return terms_; }
  // What this process knows; the slot repeats it unless somebody else wrote there.
  bool is_valid() const;

 private:
  using Asked = std::vector<bool>;  // by slot

  SharedLedger(LedgerTablePtr table, std::size_t slot, const LedgerTerms& terms, LedgerHooks hooks)
      : table_(std::move(table)), slot_(slot), terms_(terms), hooks_(std::move(hooks)) {}
  LedgerSlot& mine() const { return table_->slot(slot_); }
  Status check_promises() const;
  Status publish(std::string_view name);
  LedgerLook look() const { return look_around(*table_, slot_); }
  LedgerAnswer decide(const LedgerLook& look, std::uint64_t after) const;
  bool take(std::uint64_t bytes, LedgerNeed* need);
  bool settle(std::uint64_t bytes);
  bool retry(std::uint64_t bytes, LedgerNeed* need);
  Status refusal(std::uint64_t bytes, const LedgerNeed& need) const;
  Status give_idle(std::uint64_t wanted);
  Status ask_around(std::uint64_t bytes, LedgerNeed* need, bool* done);
  Status ask_for_idle(std::uint64_t bytes, std::uint64_t deadline, LedgerNeed* need, bool* done);
  bool next_to_ask(std::uint64_t bytes, const LedgerNeed& need, AskRound round, const Asked& asked, Ask* next);
  Status ask(const Ask& next, std::uint64_t bytes, std::uint64_t deadline, LedgerNeed* need, bool* done);
  bool helps(const LedgerSlot& slot, const LedgerNeed& need) const;
  template <typename Answered>
  Status wait_for(Answered&& answered, std::uint64_t bytes, std::uint64_t deadline, LedgerNeed* need, bool* done);
  bool is_relieved(std::uint64_t bytes, LedgerNeed* need);
  bool is_gone() const { return left_ || table_->is_forked(); }

  const LedgerTablePtr table_;
  const std::size_t slot_;
  const LedgerTerms terms_;
  const LedgerHooks hooks_;
  std::shared_ptr<LedgerListener> listener_;
  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::uint64_t used_ = 0;  // the truth of this process; the slot repeats it for the others
  bool left_ = false;
};

using SharedLedgerPtr = std::shared_ptr<SharedLedger>;

}  // namespace tensormem

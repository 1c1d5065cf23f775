// Owns: one process's part in a budget that several processes share: claims that together never pass the limit, asks
// for memory back in both directions, and the thread that hears them.
//   A claim is published first, then compared with what all others use and want: of two that race for the last room at
//   least one sees the other. The one in the later slot steps back and tries again. No lock is held between processes,
//   so one that is stopped or killed in the middle of a claim keeps its own bytes from the others and nothing else.
// Must not know: the layout of the file, pages, Python.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/fork_guard.hpp"
#include "pool/ledger_table.hpp"
#include "pool/tenant_budgets.hpp"

namespace tensormem {

struct LedgerTerms {
  std::uint64_t guaranteed = 0;
  std::uint64_t maximum = LocalBudget::kUnlimited;
  std::uint32_t priority = 1;
  std::uint64_t patience_nanoseconds = 1'000'000'000;  // how long a claim waits for those it asked
};

class LedgerListener;

class SharedLedger final : public Budget {
 public:
  // `evict` may be null: then it is never asked, and has no thread.
  static Status join(LedgerTablePtr table, std::string_view name, const LedgerTerms& terms, GiveBackHook evict,
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

 private:
  struct Look {
    std::uint64_t used = 0;       // of all, with what they are about to claim
    std::uint64_t committed = 0;  // the same, or what they are guaranteed if that is more
    std::uint64_t settled = 0;    // committed, without the claims of others that are not decided yet
    std::uint64_t settled_used = 0;
    std::uint64_t guaranteed = 0;  // to others
    bool rival_is_first = false;   // one of those claims is of an earlier slot
  };
  struct Need {
    std::uint64_t shortage = 0;
    std::uint64_t available = 0;
    bool own = false;
    bool hopeless = false;
  };
  enum class Answer : std::uint8_t { fits, full, contended };
  using Asked = std::vector<std::size_t>;

  SharedLedger(LedgerTablePtr table, std::size_t slot, const LedgerTerms& terms, GiveBackHook evict)
      : table_(std::move(table)), slot_(slot), terms_(terms), evict_(std::move(evict)) {}
  LedgerSlot& mine() const { return table_->slot(slot_); }
  Status publish(std::string_view name);
  Look look() const;
  Answer decide(const Look& look, std::uint64_t after) const;
  Need need_of(const Look& look, std::uint64_t bytes) const;
  bool take(std::uint64_t bytes, Need* need);
  bool settle(std::uint64_t bytes);
  bool retry(std::uint64_t bytes, Need* need);
  Status refusal(std::uint64_t bytes, const Need& need) const;
  Status ask_around(std::uint64_t bytes, Need* need, bool* done);
  bool next_to_ask(std::uint64_t bytes, const Need& need, AskRound round, const Asked& asked, Ask* next);
  Status ask(const Ask& next, std::uint64_t bytes, std::uint64_t deadline, Need* need, bool* done);
  Status wait_for(std::size_t slot, std::uint32_t serial, std::uint64_t bytes, std::uint64_t deadline, Need* need,
                  bool* done);
  bool is_relieved(std::uint64_t bytes, Need* need);
  bool is_gone() const { return left_ || table_->is_forked(); }

  const LedgerTablePtr table_;
  const std::size_t slot_;
  const LedgerTerms terms_;
  const GiveBackHook evict_;
  std::shared_ptr<LedgerListener> listener_;
  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::uint64_t used_ = 0;  // the truth of this process; the slot repeats it for the others
  bool left_ = false;
};

using SharedLedgerPtr = std::shared_ptr<SharedLedger>;

}  // namespace tensormem

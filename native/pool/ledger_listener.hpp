// Owns: the thread of a participant that sleeps until another process asks for memory, and answers with the hooks: one
// for what nobody uses, one for the rest. It takes no lock and no GIL of its own; the hooks do what they need.
// Must not know: claims.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

#include "pool/ledger_table.hpp"
#include "pool/tenant_budgets.hpp"

namespace tensormem {

class LedgerListener {
 public:
  // `evict` may be null: then only what nobody uses is asked for.
  static Status start(LedgerTablePtr table, std::size_t slot, GiveBackHook idle, GiveBackHook evict,
                      std::shared_ptr<LedgerListener>* listener);
  // Returns when no hook is running and none will run again; called from a hook itself, or when the process ends
  // before the hook does, returns at once.
  void stop();

 private:
  LedgerListener(LedgerTablePtr table, std::size_t slot, GiveBackHook idle, GiveBackHook evict)
      : table_(std::move(table)), slot_(slot), idle_(std::move(idle)), evict_(std::move(evict)) {}
  void listen();
  void answer(std::uint32_t serial);
  bool call(const GiveBackHook& hook, std::uint64_t wanted);

  const LedgerTablePtr table_;
  const std::size_t slot_;
  const GiveBackHook idle_;
  const GiveBackHook evict_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  pthread_t thread_{};
};

}  // namespace tensormem

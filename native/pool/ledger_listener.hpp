// Owns: the thread of a participant that sleeps until another process asks for memory, and answers with the hook. It
// takes no lock and no GIL of its own; the hook does what it needs. Must not know: claims.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

#include "pool/ledger_table.hpp"
#include "pool/tenant_budgets.hpp"

namespace tensormem {

class LedgerListener {
 public:
  static Status start(LedgerTablePtr table, std::size_t slot, GiveBackHook evict,
                      std::shared_ptr<LedgerListener>* listener);
  // Returns when the hook is not running and will not run again; called from the hook itself, or when the process
  // ends before the hook does, returns at once.
  void stop();

 private:
  LedgerListener(LedgerTablePtr table, std::size_t slot, GiveBackHook evict)
      : table_(std::move(table)), slot_(slot), evict_(std::move(evict)) {}
  void listen();
  void answer(std::uint32_t serial);

  const LedgerTablePtr table_;
  const std::size_t slot_;
  const GiveBackHook evict_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  pthread_t thread_{};
};

}  // namespace tensormem

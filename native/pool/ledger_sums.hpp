// Owns: on what terms somebody takes part in a shared budget, what its slots add up to, for all and for one job, and
// whether a claim fits into that.
//   Two limits hold for everybody: the one of all, and the one of its job. Pure but for reading the slots.
// Must not know: who is asked to give back, waits.
#pragma once

#include <cstdint>
#include <string>

#include "pool/budget.hpp"
#include "pool/ledger_table.hpp"

namespace tensormem {

constexpr std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from - (from < what ? from : what); }

struct LedgerTerms {
  std::uint64_t guaranteed = 0;
  std::uint64_t maximum = LocalBudget::kUnlimited;
  std::uint32_t priority = 1;
  std::uint64_t patience_nanoseconds = 1'000'000'000;  // how long a claim waits for those it asked
  std::string job{};                                   // its job, or nothing
  std::uint64_t job_limit = LocalBudget::kUnlimited;   // what all of the job may use together
};

struct LedgerSums {
  std::uint64_t used = 0;       // of all, with what they are about to claim
  std::uint64_t committed = 0;  // the same, or what they are guaranteed if that is more
  std::uint64_t settled = 0;    // committed, without the claims of others that are not decided yet
  std::uint64_t settled_used = 0;
  std::uint64_t guaranteed = 0;  // to others
};

struct LedgerLook {
  LedgerSums all;
  LedgerSums job;               // of the own job; nothing without one
  bool rival_is_first = false;  // a claim that is not decided yet is of an earlier slot
};

LedgerLook look_around(LedgerTable& table, std::size_t own);

enum class LedgerAnswer : std::uint8_t { fits, contended, full };

// `promised`: the claim is within what its participant is guaranteed, and gets the memory if it is there; every other
// only if all guarantees still are.
LedgerAnswer weigh(const LedgerSums& sums, std::uint64_t limit, bool promised);

enum class LedgerScope : std::uint8_t { all, job, own };

struct LedgerNeed {
  std::uint64_t shortage = 0;
  std::uint64_t available = 0;
  LedgerScope scope = LedgerScope::all;  // whose limit is short: only they can help
  bool hopeless = false;
};

// What a claim of `bytes` lacks. `look` was taken with the claim withdrawn; `used` is what the claimant has.
LedgerNeed need_of(const LedgerLook& look, const LedgerTerms& terms, std::uint64_t limit, std::uint64_t used,
                   std::uint64_t bytes);

}  // namespace tensormem

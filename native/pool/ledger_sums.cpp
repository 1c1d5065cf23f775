#include "pool/ledger_sums.hpp"

#include <algorithm>

namespace tensormem {

namespace {

struct Held {
  std::uint64_t used;
  std::uint64_t wanted;
  std::uint64_t guaranteed;
  bool own;
};

void add(LedgerSums& sums, const Held& held) {
  const std::uint64_t after = add_saturated(held.used, held.wanted);
  const std::uint64_t sure = held.own ? after : held.used;
  sums.used = add_saturated(sums.used, after);
  sums.committed = add_saturated(sums.committed, std::max(after, held.guaranteed));
  sums.settled = add_saturated(sums.settled, std::max(sure, held.guaranteed));
  sums.settled_used = add_saturated(sums.settled_used, sure);
  if (!held.own) sums.guaranteed = add_saturated(sums.guaranteed, held.guaranteed);
}

std::uint64_t shortage_of(const LedgerSums& sums, std::uint64_t limit, std::uint64_t promised, std::uint64_t bytes) {
  return bytes <= promised ? less(add_saturated(sums.used, bytes), limit)
                           : less(add_saturated(sums.committed, bytes - promised), limit);
}

std::uint64_t room_of(const LedgerSums& sums, std::uint64_t limit, std::uint64_t promised) {
  return std::min(add_saturated(promised, less(limit, sums.committed)), less(limit, sums.used));
}

}  // namespace

// A claim moves from `wanted` to `used`, so `wanted` is read first: seen in both it only counts twice for a moment; the
// other way round it could be missed.
LedgerLook look_around(LedgerTable& table, std::size_t own) {
  LedgerLook found;
  const std::uint64_t job = table.slot(own).job.load();
  const std::size_t width = table.width();
  for (std::size_t i = 0; i < width; ++i) {
    const LedgerSlot& slot = table.slot(i);
    if (slot.joined.load() == 0) continue;
    const std::uint64_t wanted = slot.wanted.load();
    const Held held{slot.used.load(), wanted, slot.guaranteed.load(), i == own};
    add(found.all, held);
    if (job != 0 && slot.job.load() == job) add(found.job, held);
    if (i < own && wanted != 0) found.rival_is_first = true;
  }
  return found;
}

LedgerAnswer weigh(const LedgerSums& sums, std::uint64_t limit, bool promised) {
  if ((promised ? sums.used : sums.committed) <= limit) return LedgerAnswer::fits;
  return (promised ? sums.settled_used : sums.settled) <= limit ? LedgerAnswer::contended : LedgerAnswer::full;
}

LedgerNeed need_of(const LedgerLook& look, const LedgerTerms& terms, std::uint64_t limit, std::uint64_t used,
                   std::uint64_t bytes) {
  const std::uint64_t promised = less(terms.guaranteed, used);
  const std::uint64_t own_room = less(terms.maximum, used);
  LedgerNeed need;
  need.available =
      std::min({room_of(look.all, limit, promised), room_of(look.job, terms.job_limit, promised), own_room});
  need.hopeless = bytes > terms.maximum || bytes > less(limit, look.all.guaranteed) ||
                  bytes > less(terms.job_limit, look.job.guaranteed);
  if (need.hopeless) return need;
  const std::uint64_t of_all = shortage_of(look.all, limit, promised, bytes);
  const std::uint64_t of_job = shortage_of(look.job, terms.job_limit, promised, bytes);
  if (bytes > own_room) {
    need.scope = LedgerScope::own;
    need.shortage = used + bytes - terms.maximum;
  } else if (of_job != 0) {
    need.scope = LedgerScope::job;
    need.shortage = std::max(of_all, of_job);
  } else {
    need.shortage = of_all;
  }
  return need;
}

}  // namespace tensormem

#include "pool/shared_ledger.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/invariant.hpp"
#include "driver/host/os.hpp"
#include "pool/ledger_listener.hpp"

namespace tensormem {

namespace {

namespace os = host::os;
constexpr int kTries = 2000;  // of a claim that races with others; each gives way to them

std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from - std::min(from, what); }

// Terms are changed in microseconds: who takes longer is stopped.
Wait for_terms(const LedgerTerms& terms) {
  constexpr std::uint64_t kLeast = 5'000'000'000;
  return Wait::of_caller(std::max(kLeast, terms.patience_nanoseconds),
                         "another participant is changing its terms, and may have been stopped in the middle");
}

Status gone() {
  return Status::fail(Code::use_after_release,
                      "this process is no participant: it left, or was forked from one; attach", 0);
}

Status check_terms(const LedgerTerms& terms) {
  if (terms.priority == 0) return Status::fail(Code::invalid_argument, "a priority counts from 1");
  if (terms.guaranteed > terms.maximum)
    return Status::fail(Code::invalid_argument, "a participant cannot be guaranteed more than its maximum");
  return {};
}

}  // namespace

// --- Joining and leaving -----------------------------------------------------------------------------------------

Status SharedLedger::join(LedgerTablePtr table, std::string_view name, const LedgerTerms& terms, GiveBackHook evict,
                          SharedLedgerPtr* ledger) {
  TM_TRY(check_terms(terms));
  TM_TRY(table->lock_terms(for_terms(terms)));
  std::size_t slot = 0;
  Status taken = table->take_slot(&slot);
  if (!taken.ok()) {
    table->unlock_terms();
    return taken;
  }
  SharedLedgerPtr made(new SharedLedger(std::move(table), slot, terms, std::move(evict)));
  Status published = made->publish(name);
  made->table_->unlock_terms();
  TM_TRY(std::move(published));
  *ledger = std::move(made);
  return {};
}

Status SharedLedger::publish(std::string_view name) {
  const std::uint64_t left = less(shared_limit(), table_->guaranteed_without(slot_));
  if (terms_.guaranteed > left)
    return Status::fail(Code::out_of_physical_memory, "there is not as much left to guarantee", terms_.guaranteed,
                        left);
  if (evict_ != nullptr) TM_TRY(LedgerListener::start(table_, slot_, evict_, &listener_));
  write_name(mine(), name);
  mine().pid.store(static_cast<std::uint32_t>(getpid()));
  mine().guaranteed.store(terms_.guaranteed);
  mine().maximum.store(terms_.maximum);
  mine().priority.store(terms_.priority);
  mine().listens.store(evict_ != nullptr ? 1 : 0);
  mine().joined.store(1);
  return {};
}

SharedLedger::~SharedLedger() {
  TM_ASSERT(used_ == 0 || table_->is_forked());
  used_ = 0;
  (void)leave().ok();
}

Status SharedLedger::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (left_) return {};
    if (used_ != 0) return Status::fail(Code::invalid_argument, "the participant still uses a part of the budget");
    left_ = true;
  }
  if (listener_ != nullptr) listener_->stop();
  table_->leave_slot(slot_);
  return {};
}

bool SharedLedger::has_left() const {
  const std::lock_guard lock(mutex_);
  return is_gone();
}

// --- What is there -----------------------------------------------------------------------------------------------

std::uint64_t SharedLedger::limit() const noexcept { return std::min(terms_.maximum, shared_limit()); }

std::uint64_t SharedLedger::used() const noexcept {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::vector<Participant> SharedLedger::participants() {
  table_->reap_dead();
  return table_->participants();
}

// A claim moves from `wanted` to `used`, so `wanted` is read first: seen in both it only counts twice for a moment; the
// other way round it could be missed.
SharedLedger::Look SharedLedger::look() const {
  Look found;
  for (std::size_t i = 0; i < LedgerTable::kSlots; ++i) {
    const LedgerSlot& slot = table_->slot(i);
    if (slot.joined.load() == 0) continue;
    const std::uint64_t wanted = slot.wanted.load();
    const std::uint64_t used = slot.used.load();
    const std::uint64_t guaranteed = slot.guaranteed.load();
    const std::uint64_t after = add_saturated(used, wanted);
    const std::uint64_t sure = i == slot_ ? after : used;
    found.used = add_saturated(found.used, after);
    found.committed = add_saturated(found.committed, std::max(after, guaranteed));
    found.settled = add_saturated(found.settled, std::max(sure, guaranteed));
    found.settled_used = add_saturated(found.settled_used, sure);
    if (i != slot_) found.guaranteed = add_saturated(found.guaranteed, guaranteed);
    if (i < slot_ && wanted != 0) found.rival_is_first = true;
  }
  return found;
}

// --- Claims ------------------------------------------------------------------------------------------------------

// What it is guaranteed a participant gets if the memory is there; more than that only if all guarantees still are.
SharedLedger::Answer SharedLedger::decide(const Look& look, std::uint64_t after) const {
  const std::uint64_t limit = shared_limit();
  const bool promised = after <= terms_.guaranteed;
  if ((promised ? look.used : look.committed) <= limit) return Answer::fits;
  return (promised ? look.settled_used : look.settled) <= limit ? Answer::contended : Answer::full;
}

// `look` was taken with the claim withdrawn.
SharedLedger::Need SharedLedger::need_of(const Look& look, std::uint64_t bytes) const {
  const std::uint64_t limit = shared_limit();
  const std::uint64_t promised = less(terms_.guaranteed, used_);
  Need need;
  need.available =
      std::min({promised + less(limit, look.committed), less(limit, look.used), less(terms_.maximum, used_)});
  need.hopeless = bytes > terms_.maximum || bytes > less(limit, look.guaranteed);
  if (need.hopeless) return need;
  need.own = bytes > less(terms_.maximum, used_);
  if (need.own) {
    need.shortage = used_ + bytes - terms_.maximum;
  } else if (bytes <= promised) {
    need.shortage = less(add_saturated(look.used, bytes), limit);
  } else {
    need.shortage = less(add_saturated(look.committed, bytes - promised), limit);
  }
  return need;
}

bool SharedLedger::take(std::uint64_t bytes, Need* need) {
  const std::lock_guard lock(mutex_);
  if (is_gone()) {
    *need = {.shortage = 0, .available = 0, .own = false, .hopeless = true};
    return false;
  }
  const bool allowed = bytes <= less(terms_.maximum, used_) && settle(bytes);
  if (allowed) return true;
  mine().wanted.store(0);
  *need = need_of(look(), bytes);
  return false;
}

bool SharedLedger::settle(std::uint64_t bytes) {
  for (int tries = 0; tries < kTries; ++tries) {
    mine().wanted.store(bytes);
    const Look now = look();
    switch (decide(now, used_ + bytes)) {
      case Answer::fits:
        used_ += bytes;
        mine().used.store(used_);
        mine().wanted.store(0);
        if (used_ > mine().peak.load()) mine().peak.store(used_);
        return true;
      case Answer::full:
        return false;
      case Answer::contended:
        if (now.rival_is_first) mine().wanted.store(0);
        sched_yield();
    }
  }
  return false;
}

// The dead may hold what is missing.
bool SharedLedger::retry(std::uint64_t bytes, Need* need) { return table_->reap_dead() != 0 && take(bytes, need); }

Status SharedLedger::refusal(std::uint64_t bytes, const Need& need) const {
  const bool own = need.own || bytes > terms_.maximum;
  return Status::fail(Code::out_of_physical_memory,
                      own ? "the participant's maximum is reached" : "the shared physical limit is reached", bytes,
                      need.available);
}

Status SharedLedger::claim(std::uint64_t bytes) noexcept {
  Need need;
  if (take(bytes, &need) || retry(bytes, &need)) return {};
  if (has_left()) return gone();
  bool done = false;
  if (!need.hopeless) {
    members().release_until([&] { return (done = done || take(bytes, &need)) || need.hopeless ? 0 : need.shortage; });
    done = done || take(bytes, &need);
  }
  if (!done && !need.hopeless && !is_asking(table_.get())) TM_TRY(ask_around(bytes, &need, &done));
  if (done) return {};
  return has_left() ? gone() : refusal(bytes, need);
}

Status SharedLedger::try_claim(std::uint64_t bytes) noexcept {
  Need need;
  if (take(bytes, &need)) return {};
  return has_left() ? gone() : refusal(bytes, need);
}

void SharedLedger::give_back(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  TM_ASSERT(bytes <= used_);
  used_ = less(used_, bytes);
  if (is_gone()) return;
  mine().used.store(used_);
  table_->tell_change();
}

// --- Asking others -----------------------------------------------------------------------------------------------

Status SharedLedger::set_limit(std::uint64_t limit) {
  if (has_left()) return gone();
  TM_TRY(table_->lock_terms(for_terms(terms_)));
  table_->reap_dead();
  const std::uint64_t guaranteed = add_saturated(table_->guaranteed_without(slot_), terms_.guaranteed);
  if (limit >= guaranteed) table_->header().limit.store(limit);
  table_->unlock_terms();
  if (limit < guaranteed)
    return Status::fail(Code::out_of_physical_memory, "the participants are guaranteed more than that", guaranteed,
                        limit);
  table_->tell_change();
  Need need;
  bool done = is_relieved(0, &need);
  if (!done && !is_asking(table_.get())) TM_TRY(ask_around(0, &need, &done));
  return {};
}

// The claim has been made; without one, the limit is kept.
bool SharedLedger::is_relieved(std::uint64_t bytes, Need* need) {
  if (bytes != 0) return take(bytes, need);
  *need = {};
  need->shortage = less(look().committed, shared_limit());
  return need->shortage == 0;
}

Status SharedLedger::ask_around(std::uint64_t bytes, Need* need, bool* done) {
  const std::uint64_t deadline = os::monotonic_nanoseconds() + terms_.patience_nanoseconds;
  for (const AskRound round : {AskRound::fair, AskRound::last_resort}) {
    Asked asked;
    Ask next{};
    while (!*done && !need->hopeless && next_to_ask(bytes, *need, round, asked, &next)) {
      asked.push_back(next.who);
      TM_TRY(ask(next, bytes, deadline, need, done));
    }
  }
  return {};
}

bool SharedLedger::next_to_ask(std::uint64_t bytes, const Need& need, AskRound round, const Asked& asked, Ask* next) {
  std::vector<Claimant> claimants(LedgerTable::kSlots);
  for (std::size_t i = 0; i < LedgerTable::kSlots; ++i) {
    const LedgerSlot& slot = table_->slot(i);
    if (slot.joined.load() == 0) continue;
    const bool fresh = std::find(asked.begin(), asked.end(), i) == asked.end();
    claimants[i] = {slot.used.load(), slot.guaranteed.load(), slot.maximum.load(), std::max(1U, slot.priority.load()),
                    fresh && slot.listens.load() != 0};
  }
  if (need.own) {
    *next = {need.shortage, slot_};
    return round == AskRound::fair && claimants[slot_].can_be_asked && claimants[slot_].used != 0;
  }
  const std::vector<Ask> asks =
      whom_to_ask(claimants, shared_limit(), bytes != 0 ? slot_ : kNobody, bytes, need.shortage, round);
  if (asks.empty()) return false;
  *next = asks.front();
  return true;
}

Status SharedLedger::ask(const Ask& next, std::uint64_t bytes, std::uint64_t deadline, Need* need, bool* done) {
  if (next.who == slot_) {
    {
      const AskingScope asking(table_.get());
      mine().times_asked.fetch_add(1);
      TM_TRY(evict_(next.bytes));
    }
    *done = is_relieved(bytes, need);
    return {};
  }
  LedgerSlot& slot = table_->slot(next.who);
  std::uint64_t before = slot.asked_bytes.load();
  while (before < next.bytes && !slot.asked_bytes.compare_exchange_weak(before, next.bytes)) {
  }
  const std::uint32_t serial = slot.ask_serial.fetch_add(1) + 1;
  os::wake_waiters(slot.ask_serial);
  return wait_for(next.who, serial, bytes, deadline, need, done);
}

// Until there is room, or the asked one has answered, died, or taken too long.
Status SharedLedger::wait_for(std::size_t who, std::uint32_t serial, std::uint64_t bytes, std::uint64_t deadline,
                              Need* need, bool* done) {
  LedgerHeader& header = table_->header();
  const LedgerSlot& slot = table_->slot(who);
  Status waited = Wait::of_caller(less(deadline, os::monotonic_nanoseconds())).until([&](std::uint64_t nanoseconds) {
    const std::uint32_t seen = header.changes.load();
    const bool answered = static_cast<std::int32_t>(slot.answered.load() - serial) >= 0 || slot.joined.load() == 0;
    *done = is_relieved(bytes, need);
    if (*done || need->hopeless || answered) return true;
    if (nanoseconds == 0) return false;
    os::wait_while(header.changes, seen, nanoseconds);
    table_->reap_dead();
    return false;
  });
  return waited.code() == Code::timed_out ? Status() : std::move(waited);
}

}  // namespace tensormem

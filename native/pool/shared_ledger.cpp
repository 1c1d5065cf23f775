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

// Terms are changed in microseconds: who takes longer is stopped.
Wait for_terms(const LedgerTerms& terms) {
  constexpr std::uint64_t kLeast = 5'000'000'000;
  return Wait::of_caller(std::max(kLeast, terms.patience_nanoseconds),
                         "another participant is changing its terms, and may have been stopped in the middle");
}

// Asks the owner of a slot for at least so much; gives the serial of the ask.
std::uint32_t post(LedgerSlot& slot, std::atomic<std::uint64_t>& asked, std::uint64_t bytes) {
  std::uint64_t before = asked.load();
  while (before < bytes && !asked.compare_exchange_weak(before, bytes)) {
  }
  const std::uint32_t serial = slot.ask_serial.fetch_add(1) + 1;
  os::wake_waiters(slot.ask_serial);
  return serial;
}

bool has_answered(const LedgerSlot& slot, std::uint32_t serial) {
  return static_cast<std::int32_t>(slot.answered.load() - serial) >= 0 || slot.joined.load() == 0;
}

Status gone() {
  return Status::fail(Code::use_after_release,
                      "this process is no participant: it left, or was forked from one; attach", 0);
}

Status check_terms(const LedgerTerms& terms) {
  if (terms.priority == 0) return Status::fail(Code::invalid_argument, "a priority counts from 1");
  if (terms.guaranteed > terms.maximum)
    return Status::fail(Code::invalid_argument, "a participant cannot be guaranteed more than its maximum");
  if (terms.job.empty() && terms.job_limit != LocalBudget::kUnlimited)
    return Status::fail(Code::invalid_argument, "the budget of a job needs the name of the job");
  return {};
}

}  // namespace

// --- Joining and leaving -----------------------------------------------------------------------------------------

Status SharedLedger::join(LedgerTablePtr table, std::string_view name, const LedgerTerms& terms, LedgerHooks hooks,
                          SharedLedgerPtr* ledger) {
  TM_TRY(check_terms(terms));
  TM_TRY(table->lock_terms(for_terms(terms)));
  std::size_t slot = 0;
  Status taken = table->take_slot(&slot);
  if (!taken.ok()) {
    table->unlock_terms();
    return taken;
  }
  SharedLedgerPtr made(new SharedLedger(std::move(table), slot, terms, std::move(hooks)));
  Status published = made->publish(name);
  made->table_->unlock_terms();
  TM_TRY(std::move(published));
  *ledger = std::move(made);
  return {};
}

// What everybody was promised holds with the newcomer too, and its job has one limit.
Status SharedLedger::check_promises() const {
  const std::uint64_t job = job_key(terms_.job);
  for (std::size_t i = 0; job != 0 && i < table_->width(); ++i) {
    const LedgerSlot& other = table_->slot(i);
    if (i != slot_ && other.joined.load() != 0 && other.job.load() == job && other.job_limit.load() != terms_.job_limit)
      return Status::fail(Code::invalid_argument, "others of the job declared another budget for it",
                          other.job_limit.load(), terms_.job_limit);
  }
  std::uint64_t left = less(shared_limit(), table_->guaranteed_without(slot_));
  if (job != 0) left = std::min(left, less(terms_.job_limit, table_->guaranteed_without(slot_, job)));
  if (terms_.guaranteed > left)
    return Status::fail(Code::out_of_physical_memory, "there is not as much left to guarantee", terms_.guaranteed,
                        left);
  return {};
}

Status SharedLedger::publish(std::string_view name) {
  TM_TRY(check_promises());
  const bool can_have = terms_.maximum != 0;
  if (can_have) {
    const auto idle = [this](std::uint64_t wanted) { return give_idle(wanted); };
    TM_TRY(LedgerListener::start(table_, slot_, idle, hooks_.evict, &listener_));
  }
  write_name(mine(), name, terms_.job);
  mine().pid.store(static_cast<std::uint32_t>(getpid()));
  mine().guaranteed.store(terms_.guaranteed);
  mine().maximum.store(terms_.maximum);
  mine().priority.store(terms_.priority);
  mine().job.store(job_key(terms_.job));
  mine().job_limit.store(terms_.job_limit);
  mine().listens.store((can_have ? kGivesIdle : 0U) | (can_have && hooks_.evict != nullptr ? kEvicts : 0U));
  mine().joined.store(1);
  return {};
}

// In the thread that hears the others, which has ended before this has.
Status SharedLedger::give_idle(std::uint64_t wanted) {
  const std::uint64_t before = used();
  (void)members().release(wanted);
  const std::uint64_t gone = less(before, used());
  return gone < wanted && hooks_.idle != nullptr ? hooks_.idle(wanted - gone) : Status();
}

bool SharedLedger::is_valid() const {
  const std::lock_guard lock(mutex_);
  if (!table_->is_valid() || slot_ >= LedgerTable::kSlots) return false;
  return is_gone() ? used_ == 0 || table_->is_forked() : used_ <= terms_.maximum;
}

SharedLedger::~SharedLedger() {
  TM_WALK(is_valid());
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

// --- Claims ------------------------------------------------------------------------------------------------------

LedgerAnswer SharedLedger::decide(const LedgerLook& look, std::uint64_t after) const {
  const bool promised = after <= terms_.guaranteed;
  return std::max(weigh(look.all, shared_limit(), promised), weigh(look.job, terms_.job_limit, promised));
}

bool SharedLedger::take(std::uint64_t bytes, LedgerNeed* need) {
  const std::lock_guard lock(mutex_);
  if (is_gone()) {
    *need = {};
    need->hopeless = true;
    return false;
  }
  const bool allowed = bytes <= less(terms_.maximum, used_) && settle(bytes);
  if (allowed) return true;
  mine().wanted.store(0);
  *need = need_of(look(), terms_, shared_limit(), used_, bytes);
  return false;
}

bool SharedLedger::settle(std::uint64_t bytes) {
  for (int tries = 0; tries < kTries; ++tries) {
    mine().wanted.store(bytes);
    const LedgerLook now = look();
    switch (decide(now, used_ + bytes)) {
      case LedgerAnswer::fits:
        used_ += bytes;
        mine().used.store(used_);
        mine().wanted.store(0);
        if (used_ > mine().peak.load()) mine().peak.store(used_);
        return true;
      case LedgerAnswer::full:
        return false;
      case LedgerAnswer::contended:
        if (now.rival_is_first) mine().wanted.store(0);
        sched_yield();
    }
  }
  return false;
}

// The dead may hold what is missing.
bool SharedLedger::retry(std::uint64_t bytes, LedgerNeed* need) {
  return table_->reap_dead() != 0 && take(bytes, need);
}

Status SharedLedger::refusal(std::uint64_t bytes, const LedgerNeed& need) const {
  const char* why = "the shared physical limit is reached";
  if (need.scope == LedgerScope::own || bytes > terms_.maximum) {
    why = "the participant's maximum is reached";
  } else if (need.scope == LedgerScope::job || bytes > terms_.job_limit) {
    why = "the budget of the job is reached";
  }
  return Status::fail(Code::out_of_physical_memory, why, bytes, need.available);
}

Status SharedLedger::claim(std::uint64_t bytes) noexcept {
  LedgerNeed need;
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
  LedgerNeed need;
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
  LedgerNeed need;
  bool done = is_relieved(0, &need);
  if (!done && !is_asking(table_.get())) TM_TRY(ask_around(0, &need, &done));
  return {};
}

// The claim has been made; without one, the limit is kept.
bool SharedLedger::is_relieved(std::uint64_t bytes, LedgerNeed* need) {
  if (bytes != 0) return take(bytes, need);
  *need = {};
  need->shortage = less(look().all.committed, shared_limit());
  return need->shortage == 0;
}

Status SharedLedger::ask_around(std::uint64_t bytes, LedgerNeed* need, bool* done) {
  const std::uint64_t now = os::monotonic_nanoseconds();
  TM_TRY(ask_for_idle(bytes, now + terms_.patience_nanoseconds / 2, need, done));
  for (const AskRound round : {AskRound::fair, AskRound::last_resort}) {
    Asked asked(table_->width());
    Ask next{};
    while (!*done && !need->hopeless && next_to_ask(bytes, *need, round, asked, &next)) {
      asked[next.who] = true;
      TM_TRY(ask(next, bytes, now + terms_.patience_nanoseconds, need, done));
    }
  }
  return {};
}

// Whether memory of this slot counts where it is short.
bool SharedLedger::helps(const LedgerSlot& slot, const LedgerNeed& need) const {
  if (slot.joined.load() == 0) return false;
  if (need.scope == LedgerScope::own) return &slot == &mine();
  return need.scope == LedgerScope::all || slot.job.load() == mine().job.load();
}

// Everybody at once: it costs them nothing, and one that is stopped does not keep the others from answering. This
// process has given its own.
Status SharedLedger::ask_for_idle(std::uint64_t bytes, std::uint64_t deadline, LedgerNeed* need, bool* done) {
  struct Pending {
    std::size_t who;
    std::uint32_t serial;
  };
  std::vector<Pending> pending;
  for (std::size_t i = 0; i < table_->width() && need->scope != LedgerScope::own; ++i) {
    LedgerSlot& slot = table_->slot(i);
    const std::uint64_t above = less(slot.used.load(), slot.guaranteed.load());
    if (i == slot_ || above == 0 || !helps(slot, *need) || (slot.listens.load() & kGivesIdle) == 0) continue;
    pending.push_back({i, post(slot, slot.asked_idle, std::min(above, need->shortage))});
  }
  if (pending.empty()) return {};
  const auto answered = [&] {
    std::erase_if(pending, [&](const Pending& each) { return has_answered(table_->slot(each.who), each.serial); });
    return pending.empty();
  };
  return wait_for(answered, bytes, deadline, need, done);
}

bool SharedLedger::next_to_ask(std::uint64_t bytes, const LedgerNeed& need, AskRound round, const Asked& asked,
                               Ask* next) {
  std::vector<Claimant> claimants(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const LedgerSlot& slot = table_->slot(i);
    if (slot.joined.load() == 0 || (need.scope == LedgerScope::job && !helps(slot, need))) continue;
    claimants[i] = {slot.used.load(), slot.guaranteed.load(), slot.maximum.load(), std::max(1U, slot.priority.load()),
                    !asked[i] && (slot.listens.load() & kEvicts) != 0};
  }
  if (need.scope == LedgerScope::own) {
    *next = {need.shortage, slot_};
    return round == AskRound::fair && claimants[slot_].can_be_asked && claimants[slot_].used != 0;
  }
  const std::uint64_t limit = need.scope == LedgerScope::job ? terms_.job_limit : shared_limit();
  const std::vector<Ask> asks =
      whom_to_ask(claimants, limit, bytes != 0 ? slot_ : kNobody, bytes, need.shortage, round);
  if (asks.empty()) return false;
  *next = asks.front();
  return true;
}

Status SharedLedger::ask(const Ask& next, std::uint64_t bytes, std::uint64_t deadline, LedgerNeed* need, bool* done) {
  if (next.who == slot_) {
    {
      const AskingScope asking(table_.get());
      mine().times_asked.fetch_add(1);
      TM_TRY(hooks_.evict(next.bytes));
    }
    *done = is_relieved(bytes, need);
    return {};
  }
  LedgerSlot& slot = table_->slot(next.who);
  const std::uint32_t serial = post(slot, slot.asked_bytes, next.bytes);
  return wait_for([&] { return has_answered(slot, serial); }, bytes, deadline, need, done);
}

// Until there is room, or those who were asked have answered, died, or taken too long.
template <typename Answered>
Status SharedLedger::wait_for(Answered&& answered, std::uint64_t bytes, std::uint64_t deadline, LedgerNeed* need,
                              bool* done) {
  LedgerHeader& header = table_->header();
  Status waited = Wait::of_caller(less(deadline, os::monotonic_nanoseconds())).until([&](std::uint64_t nanoseconds) {
    const std::uint32_t seen = header.changes.load();
    const bool all_did = answered();
    *done = is_relieved(bytes, need);
    if (*done || need->hopeless || all_did) return true;
    if (nanoseconds == 0) return false;
    os::wait_while(header.changes, seen, nanoseconds);
    table_->reap_dead();
    return false;
  });
  return waited.code() == Code::timed_out ? Status() : std::move(waited);
}

}  // namespace tensormem

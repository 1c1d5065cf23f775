// The debug guard's second half: blocks between their free and their way upstream, and looking at blocks.
#include <limits>

#include "base/invariant.hpp"
#include "resource/guarded_block.hpp"
#include "trace/inside.hpp"

namespace tensormem {

namespace {

GuardDamageKind kind_of(const GuardDamage& damage, bool freed) {
  if (freed) return GuardDamageKind::use_after_free;
  return damage.offset < 0 ? GuardDamageKind::underflow : GuardDamageKind::overflow;
}

}  // namespace

std::uint64_t DebugGuardResourceAdaptor::quarantined_bytes() const {
  const std::lock_guard lock(mutex_);
  return quarantined_bytes_;
}

std::uint64_t DebugGuardResourceAdaptor::quarantined_count() const {
  const std::lock_guard lock(mutex_);
  return quarantine_.size();
}

Status DebugGuardResourceAdaptor::check_all(std::vector<GuardFinding>* findings) {
  reports_.take_untold(findings);
  Status first_failure;
  std::vector<Pin> pins = pin_all();
  for (Pin& pin : pins) {
    Status checked = check(&pin, findings);
    if (!checked.ok() && first_failure.ok()) first_failure = std::move(checked);
  }
  unpin_all(pins);
  return first_failure;
}

void DebugGuardResourceAdaptor::quarantine(GuardedBlock* guarded) {
  {
    const std::lock_guard lock(mutex_);
    BlockEntry* entry = table_.find(guarded->given.address);
    TM_ASSERT(entry != nullptr && entry->state == BlockState::retired);
    entry->state = BlockState::quarantined;
    stats_.on_reap(entry->nbytes);
    quarantine_.push_back(guarded);
    quarantined_bytes_ += entry->nbytes;
  }
  // A block that the upstream does not take stays in quarantine, counted, and is tried again with the next.
  (void)shrink_to(options_.quarantine_bytes, options_.quarantine_blocks).ok();
}

// Ends at the first failure: what fails goes to the back of the line and must not be tried for ever.
Status DebugGuardResourceAdaptor::shrink_to(std::uint64_t max_bytes, std::uint64_t max_count) {
  while (true) {
    GuardedBlock* victim = nullptr;
    {
      const std::lock_guard lock(mutex_);
      victim = take_victim(max_bytes, max_count);
    }
    if (victim == nullptr) return {};
    TM_TRY(release(victim));
  }
}

// With the lock. A block larger than the whole quarantine goes by itself instead of pushing all others out.
DebugGuardResourceAdaptor::GuardedBlock* DebugGuardResourceAdaptor::take_victim(std::uint64_t max_bytes,
                                                                                std::uint64_t max_count) {
  if (quarantined_bytes_ <= max_bytes && quarantine_.size() <= max_count) return nullptr;
  auto victim = quarantine_.end() - 1;
  if ((*victim)->given.nbytes <= max_bytes || (*victim)->readers != 0) {
    victim = quarantine_.begin();
    while (victim != quarantine_.end() && (*victim)->readers != 0) ++victim;
    if (victim == quarantine_.end()) return nullptr;  // whoever looks at them calls again
  }
  GuardedBlock* taken = *victim;
  taken->leaving = true;
  quarantined_bytes_ -= taken->given.nbytes;
  quarantine_.erase(victim);
  return taken;
}

Status DebugGuardResourceAdaptor::release(GuardedBlock* guarded) {
  std::vector<GuardDamage> damage;
  if (Status inspected = bands_.find_damage(guarded->memory, true, &damage); !inspected.ok()) {
    quarantine_again(guarded);
    return inspected;
  }
  if (!guarded->told) (void)file(*guarded, true, damage, false).ok();
  BlockEntry entry;
  {
    // The entry goes before the memory: once the upstream has the address, another thread may be handed it.
    const std::lock_guard lock(mutex_);
    entry = *table_.find(guarded->given.address);
    table_.erase(guarded->given.address);
  }
  // No stream uses it any more, and the stream it was freed on may be gone.
  BlockState end{};
  const TraceInside inside;
  Status freed = upstream().deallocate(guarded->upstream, kDefaultStream, &end);
  if (!freed.ok()) {
    std::unique_lock lock(mutex_);
    if (table_.insert(entry).ok()) {
      lock.unlock();
      quarantine_again(guarded);
      return freed;
    }
  }
  delete guarded;
  return freed;
}

void DebugGuardResourceAdaptor::quarantine_again(GuardedBlock* guarded) {
  const std::lock_guard lock(mutex_);
  guarded->leaving = false;
  quarantine_.push_back(guarded);
  quarantined_bytes_ += guarded->given.nbytes;
}

std::uint64_t DebugGuardResourceAdaptor::release_some(std::uint64_t nbytes) {
  const std::uint64_t before = quarantined_bytes();
  const std::uint64_t keep = before > nbytes ? before - nbytes : 0;
  (void)shrink_to(keep, std::numeric_limits<std::uint64_t>::max()).ok();
  const std::uint64_t after = quarantined_bytes();
  return before > after ? before - after : 0;
}

// A pinned block may be given back meanwhile, but stays in quarantine: its memory is there to be looked at.
std::vector<DebugGuardResourceAdaptor::Pin> DebugGuardResourceAdaptor::pin_all() {
  std::vector<Pin> pins;
  const std::lock_guard lock(mutex_);
  pins.reserve(table_.size());
  table_.for_each([&](BlockEntry& entry) {
    auto* guarded = static_cast<GuardedBlock*>(entry.uses);
    if (guarded->leaving || entry.state == BlockState::retired) return;
    ++guarded->readers;
    pins.push_back({guarded, guarded->memory, entry.state == BlockState::quarantined, false});
  });
  return pins;
}

void DebugGuardResourceAdaptor::unpin_all(const std::vector<Pin>& pins) {
  {
    const std::lock_guard lock(mutex_);
    for (const Pin& pin : pins) {
      --pin.guarded->readers;
      if (pin.freed && pin.damaged) pin.guarded->told = true;
    }
  }
  (void)shrink_to(options_.quarantine_bytes, options_.quarantine_blocks).ok();
}

Status DebugGuardResourceAdaptor::check(Pin* pin, std::vector<GuardFinding>* findings) {
  const GuardedBlock& guarded = *pin->guarded;
  bool dry = !guarded.painted;
  if (!dry) TM_TRY(driver().event_query(guarded.painted.handle(), &dry));
  if (!dry) return {};
  std::vector<GuardDamage> damage;
  TM_TRY(bands_.find_damage(pin->memory, pin->freed, &damage));
  for (const GuardDamage& each : damage) {
    findings->push_back({guarded.given, kind_of(each, pin->freed), each, guarded.allocated_at,
                         pin->freed ? guarded.freed_at : CapturedStack()});
  }
  pin->damaged = !damage.empty();
  return {};
}

// The failure tells of the first.
Status DebugGuardResourceAdaptor::file(const GuardedBlock& guarded, bool freed, const std::vector<GuardDamage>& damage,
                                       bool told) {
  Status first;
  for (const GuardDamage& each : damage) {
    const GuardFinding finding{guarded.given, kind_of(each, freed), each, guarded.allocated_at, guarded.freed_at};
    reports_.add(finding, !told);
    if (first.ok()) first = status_of(finding);
  }
  return first;
}

}  // namespace tensormem

#include "resource/debug_guard_resource_adaptor.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>

#include "base/align.hpp"
#include "base/blocking.hpp"
#include "base/invariant.hpp"
#include "resource/failure_callback_resource_adaptor.hpp"
#include "resource/guarded_block.hpp"

namespace tensormem {

namespace {

// A large alignment makes a large gap before the block; this much of it is painted, or more if more was asked for.
constexpr std::uint64_t kPaintedGapBytes = 4096;

}  // namespace

DebugGuardResourceAdaptor::DebugGuardResourceAdaptor(ResourcePtr upstream, const DebugGuardOptions& options,
                                                     DebugGuardHooks hooks)
    : ResourceAdaptor(std::move(upstream)),
      options_(options),
      stacks_(std::move(hooks.stacks)),
      bands_(driver(), device(), options),
      reports_(std::move(hooks.report)),
      order_(driver(), device()) {
  TM_ASSERT(check_guard_options(options).ok());
}

DebugGuardResourceAdaptor::~DebugGuardResourceAdaptor() {
  TM_WALK(is_valid());
  // Nobody holds a block any more, or it would hold us; what is left waits for a stream or is in quarantine.
  std::vector<GuardedBlock*> passed = std::move(unexamined_);
  if (!retired_.empty()) {
    const BlockingRegion region;
    retired_.wait_and_take(order_, &passed);
  }
  (void)settle_all(passed, false).ok();
  (void)flush_quarantine().ok();
  table_.for_each([](BlockEntry& entry) { delete static_cast<GuardedBlock*>(entry.uses); });
}

Status DebugGuardResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  AllocRequest larger;
  std::uint64_t front = 0;
  TM_TRY(padded(request, &larger, &front));
  std::unique_ptr<GuardedBlock> guarded(new (std::nothrow) GuardedBlock);
  if (guarded == nullptr) return Status::fail(Code::out_of_memory, "no memory to guard one more block", request.nbytes);
  TM_TRY(allocate_upstream(larger, request.nbytes, &guarded->upstream));
  describe(request, front, guarded.get());
  guarded->allocated_at = capture_stack(stacks_);

  const Block given = guarded->given;
  Status ready = prepare(guarded.get(), request.stream);
  if (ready.ok()) ready = insert(guarded.get());
  if (!ready.ok()) {
    // A block that its own upstream does not take back stays counted there; the first failure is the one to tell.
    BlockState end{};
    (void)upstream().deallocate(guarded->upstream, request.stream, &end).ok();
    return ready;
  }
  (void)guarded.release();  // the table has it
  *block = given;
  return {};
}

Status DebugGuardResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(check_stream(stream));
  GuardedBlock* guarded = nullptr;
  Uses until;
  TM_TRY(retire(block, stream, &guarded, &until));
  guarded->freed_at = capture_stack(stacks_);

  bool passed = false;
  bool examined = false;
  Status given_back = order_end(stream, &until, &passed);
  if (given_back.ok() && !passed) {
    const std::lock_guard lock(mutex_);
    retired_.push(guarded, std::move(until));
    *end = BlockState::retired;
    return {};
  }
  if (given_back.ok()) given_back = settle(guarded, true, &examined);
  if (examined) {
    *end = state_of(block);
  } else {
    revive(guarded);
  }
  return given_back;
}

std::uint64_t DebugGuardResourceAdaptor::bytes_outstanding() const {
  const std::lock_guard lock(mutex_);
  return stats_.current_bytes;
}

Stats DebugGuardResourceAdaptor::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

BlockState DebugGuardResourceAdaptor::state_of(const Block& block) const {
  const std::lock_guard lock(mutex_);
  const BlockEntry* entry = table_.find(block.address);
  return entry != nullptr && entry->generation == block.generation ? entry->state : BlockState::freed;
}

Status DebugGuardResourceAdaptor::reap(bool told) {
  std::vector<GuardedBlock*> passed;
  Status asked;
  {
    std::unique_lock lock(mutex_);
    passed.swap(unexamined_);
    asked = retired_.take_done(order_, lock, &passed);
  }
  Status settled = settle_all(passed, told);
  Status reaped = upstream().reap_pending();
  if (!settled.ok()) return settled;
  return asked.ok() ? std::move(reaped) : std::move(asked);
}

Status DebugGuardResourceAdaptor::prepare_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  Uses others;
  {
    const std::lock_guard lock(mutex_);
    BlockEntry* entry = nullptr;
    TM_TRY(find_live(block, &entry));
    others = static_cast<const GuardedBlock*>(entry->uses)->uses.conflicts(stream, access);
  }
  return wait_for(others, stream);
}

Status DebugGuardResourceAdaptor::finish_block_use(const Block& block, StreamId stream, Access access) {
  TM_TRY(check_stream(stream));
  std::unique_lock lock(mutex_);
  BlockEntry* entry = nullptr;
  TM_TRY(find_live(block, &entry));
  lock.unlock();
  EventRef event;
  TM_TRY(order_.mark(stream, &event));
  lock.lock();
  TM_TRY(find_live(block, &entry));  // another thread may have given it back meanwhile
  static_cast<GuardedBlock*>(entry->uses)->uses.finished(stream, access, std::move(event));
  return {};
}

bool DebugGuardResourceAdaptor::is_valid() const {
  const std::lock_guard lock(mutex_);
  Stats found;
  std::uint64_t held_bytes = 0;
  bool consistent = true;
  table_.for_each([&](const BlockEntry& entry) {
    const auto* guarded = static_cast<const GuardedBlock*>(entry.uses);
    consistent = consistent && guarded->given.address == entry.address && guarded->given.generation == entry.generation;
    const Block& around = guarded->upstream;
    consistent = consistent && bands_.is_valid(guarded->memory, around.address, around.nbytes);
    if (entry.state == BlockState::quarantined) return;
    found.on_allocate(entry.nbytes);
    if (entry.state == BlockState::retired) found.on_retire(entry.nbytes);
  });
  for (const GuardedBlock* guarded : quarantine_) held_bytes += guarded->given.nbytes;
  return consistent && table_.is_valid() && found.current_bytes == stats_.current_bytes &&
         found.current_count == stats_.current_count && found.retired_count == stats_.retired_count &&
         held_bytes == quarantined_bytes_;
}

Status DebugGuardResourceAdaptor::padded(const AllocRequest& request, AllocRequest* larger,
                                         std::uint64_t* front) const {
  // A multiple of the alignment, so that the block behind it is aligned as the upstream's is.
  *front = align_up(options_.front_guard, request.alignment);
  std::uint64_t total = 0;
  if (!checked_add(request.nbytes, *front, &total) || !checked_add(total, options_.back_guard, &total) ||
      total > kNoOverflowLimit - request.alignment)
    return Status::fail(Code::invalid_size, "too large to add the guards to", request.nbytes);
  *larger = request;
  larger->nbytes = total;
  larger->zeroed = false;  // it will be poisoned
  return {};
}

// Memory in quarantine is not worth a failed allocation.
Status DebugGuardResourceAdaptor::allocate_upstream(const AllocRequest& larger, std::uint64_t nbytes, Block* block) {
  Status tried = upstream().allocate(larger, block);
  if (!is_shortage(tried.code())) [[likely]]
    return tried;
  (void)reap(false).ok();
  do {
    tried = upstream().allocate(larger, block);
  } while (is_shortage(tried.code()) && release_some(nbytes) != 0);
  if (is_shortage(tried.code())) tried.set_fact(0, nbytes);  // the guards are ours; the caller asked for less
  return tried;
}

void DebugGuardResourceAdaptor::describe(const AllocRequest& request, std::uint64_t front,
                                         GuardedBlock* guarded) const {
  guarded->given = guarded->upstream;  // the generation stays: it is the same allocation, seen from above
  guarded->given.address += front;
  guarded->given.nbytes = request.nbytes;
  guarded->given.origin = id();
  guarded->given.slot = kNoSlot;
  guarded->given.alignment_log2 = static_cast<std::uint8_t>(std::countr_zero(request.alignment));
  guarded->memory = {.address = guarded->given.address,
                     .nbytes = request.nbytes,
                     .front = std::max(options_.front_guard, std::min(front, kPaintedGapBytes)),
                     .back = options_.back_guard};
}

Status DebugGuardResourceAdaptor::prepare(GuardedBlock* guarded, StreamId stream) {
  bool queued = false;
  TM_TRY(bands_.paint(guarded->memory, stream, &queued));
  if (!queued) return {};
  TM_TRY(order_.mark(stream, &guarded->painted));
  guarded->uses.finished(stream, Access::write, guarded->painted);  // another stream's first use waits for the paint
  return {};
}

Status DebugGuardResourceAdaptor::insert(GuardedBlock* guarded) {
  const Block& given = guarded->given;
  BlockEntry entry;
  entry.address = given.address;
  entry.nbytes = given.nbytes;
  entry.generation = given.generation;
  entry.stream = given.stream;
  entry.uses = guarded;
  entry.tag = given.tag;
  entry.alignment_log2 = given.alignment_log2;
  const std::lock_guard lock(mutex_);
  TM_TRY(table_.insert(entry));
  stats_.on_allocate(given.nbytes);
  return {};
}

Status DebugGuardResourceAdaptor::find_live(const Block& block, BlockEntry** entry) {
  TM_TRY(table_.check(block.address, block.generation, block.origin == id()));
  BlockEntry* found = table_.find(block.address);
  if (found->state != BlockState::live)
    return Status::fail(Code::use_after_free, "the block was given back before", block.generation, block.address);
  *entry = found;
  return {};
}

Status DebugGuardResourceAdaptor::retire(const Block& block, StreamId stream, GuardedBlock** guarded, Uses* until) {
  const std::lock_guard lock(mutex_);
  BlockEntry* entry = nullptr;
  TM_TRY(find_live(block, &entry));
  entry->state = BlockState::retired;  // from here on a second free is caught, and the block is ours alone
  stats_.on_retire(entry->nbytes);
  *guarded = static_cast<GuardedBlock*>(entry->uses);
  *until = (*guarded)->uses.conflicts(stream, Access::write);
  return {};
}

void DebugGuardResourceAdaptor::revive(GuardedBlock* guarded) {
  const CapturedStack dropped = std::exchange(guarded->freed_at, nullptr);
  const std::lock_guard lock(mutex_);
  BlockEntry* entry = table_.find(guarded->given.address);
  TM_ASSERT(entry != nullptr && entry->state == BlockState::retired);
  entry->state = BlockState::live;
  stats_.retired_bytes -= entry->nbytes;
  stats_.retired_count -= 1;
}

// `*until` becomes what the block waits for. A stream that runs inline would make the caller wait: there it is the uses
// themselves; elsewhere one event, behind all of them.
Status DebugGuardResourceAdaptor::order_end(StreamId stream, Uses* until, bool* passed) {
  if (!driver().stream_is_inline(stream)) {
    TM_TRY(order_.wait_for(*until, stream));
    EventRef end;
    TM_TRY(order_.mark(stream, &end));
    until->clear();
    until->push_back({stream, std::move(end)});
  }
  // A query that fails proves nothing: the block waits, and reap_pending will tell.
  if (!order_.are_done(*until, passed).ok()) *passed = false;
  return {};
}

// On a stream that runs inline this blocks, and the work it waits for may need the caller's lock.
Status DebugGuardResourceAdaptor::wait_for(const Uses& others, StreamId stream) {
  if (others.empty()) return {};
  const BlockingRegion region;
  return order_.wait_for(others, stream);
}

Status DebugGuardResourceAdaptor::settle(GuardedBlock* guarded, bool told, bool* examined) {
  std::vector<GuardDamage> damage;
  TM_TRY(bands_.find_damage(guarded->memory, false, &damage));
  TM_TRY(bands_.poison_freed(guarded->memory));
  *examined = true;
  Status filed = file(*guarded, false, damage, told);
  if (!damage.empty()) {
    // Broken guards say nothing about what happens from now on.
    const std::lock_guard lock(mutex_);
    guarded->memory.front = 0;
    guarded->memory.back = 0;
  }
  quarantine(guarded);
  return filed;
}

Status DebugGuardResourceAdaptor::settle_all(const std::vector<GuardedBlock*>& passed, bool told) {
  Status first_failure;
  for (GuardedBlock* guarded : passed) {
    bool examined = false;
    Status settled = settle(guarded, told, &examined);
    if (!examined) {
      const std::lock_guard lock(mutex_);
      unexamined_.push_back(guarded);
    }
    if (!settled.ok() && first_failure.ok()) first_failure = std::move(settled);
  }
  return first_failure;
}

}  // namespace tensormem

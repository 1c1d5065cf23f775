#include "share/ring_reader.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem {

namespace {

namespace os = host::os;

constexpr std::uint64_t kGlance = 20'000'000;  // how often a waiting reader looks whether the writer still lives
constexpr std::uint32_t kNoSlot = ~0U;
constexpr int kTries = 64;  // of a frame that the writer keeps taking away; then it is time to sleep

}  // namespace

RingReader::RingReader(RingFilePtr file, std::unique_ptr<MemberLock> lock, std::uint32_t index, ReadMode mode)
    : file_(std::move(file)),
      lock_(std::move(lock)),
      index_(index),
      mode_(mode),
      holds_(file_->format().slot_count, 0) {}

Status RingReader::attach(RingFilePtr file, ReadMode mode, std::unique_ptr<RingReader>* reader) {
  std::unique_ptr<MemberLock> lock;
  TM_TRY(MemberLock::open(file->fd(), &lock));
  reader->reset();
  file->reap_dead_readers(*lock, kMaxReaders + 1);
  for (std::uint32_t i = 0; i < kMaxReaders; ++i) {
    if (file->member(i).joined.load() != 0) continue;
    const int refused = lock->try_lock(i);
    if (refused == EAGAIN) continue;  // somebody is joining or cleaning up there
    if (refused != 0) return Status::driver_error(refused, "fcntl(F_OFD_SETLK)");
    std::unique_ptr<RingReader> made(new RingReader(std::move(file), std::move(lock), i, mode));
    made->join();
    *reader = std::move(made);
    return {};
  }
  return {};
}

// Begins with the newest frame. Once `wants` can be seen, the writer keeps what is newer; frames that came while it
// could not be seen yet may be gone, so the newest is asked for again: no frame above that one was taken from us.
void RingReader::join() {
  RingMember& mine = file_->member(index_);
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i) file_->slot(i).word.fetch_and(~(1ULL << index_));
  mine.pid.store(static_cast<std::uint32_t>(getpid()));
  mine.taken.store(0);
  mine.missed.store(0);
  const bool every = mode_ == ReadMode::every;
  const auto newest = [this] { return std::max<std::uint64_t>(1, file_->header().latest.load()); };
  mine.wants.store(every ? newest() : RingMember::kNothing);
  mine.joined.store(1);
  wants_ = newest();
  if (every) mine.wants.store(wants_);
}

RingReader::~RingReader() {
  TM_WALK(is_valid());
  if (is_forked()) return;
  RingMember& mine = file_->member(index_);
  mine.joined.store(0);
  mine.wants.store(RingMember::kNothing);
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i) file_->slot(i).word.fetch_and(~(1ULL << index_));
  lock_->unlock(index_);
  file_->tell_writer();
}

// --- Taking a frame ----------------------------------------------------------------------------------------------

// Among frames `from`..`to`: the newest for a reader of the latest, the oldest for one of every frame.
std::uint32_t RingReader::find(std::uint64_t from, std::uint64_t to, std::uint64_t* number) {
  std::uint32_t best = kNoSlot;
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i) {
    const std::uint64_t found = file_->slot(i).number.load(std::memory_order_acquire);
    if (found < from || found > to) continue;
    if (best != kNoSlot && (mode_ == ReadMode::latest ? found < *number : found > *number)) continue;
    best = i;
    *number = found;
  }
  return best;
}

bool RingReader::hold(std::uint32_t slot, std::uint64_t number) {
  RingSlot& place = file_->slot(slot);
  const std::uint64_t before = place.word.fetch_or(1ULL << index_, std::memory_order_acq_rel);
  if ((before & RingSlot::kWriting) == 0 && place.number.load(std::memory_order_relaxed) == number) {
    ++holds_[slot];
    return true;
  }
  if (holds_[slot] == 0) let_go(slot);
  return false;
}

void RingReader::let_go(std::uint32_t slot) {
  file_->slot(slot).word.fetch_and(~(1ULL << index_), std::memory_order_release);
  file_->tell_writer();
}

void RingReader::note(std::uint32_t slot, std::uint64_t number, HeldFrame* frame) {
  RingMember& mine = file_->member(index_);
  frame->slot = slot;
  frame->number = number;
  frame->timestamp = file_->slot(slot).timestamp.load(std::memory_order_relaxed);
  frame->dropped = first_ ? 0 : number - wants_;
  first_ = false;
  wants_ = number + 1;
  if (mode_ == ReadMode::every) mine.wants.store(wants_);
  mine.taken.fetch_add(1, std::memory_order_relaxed);
  mine.missed.fetch_add(frame->dropped, std::memory_order_relaxed);
}

bool RingReader::take_now(HeldFrame* frame) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t latest = file_->header().latest.load();
    std::uint64_t number = 0;
    if (latest == ~0ULL) return false;
    if (latest + 1 < wants_) wants_ = std::max<std::uint64_t>(1, latest);  // what we were told before was scribbled
    if (latest < wants_) return false;
    const std::uint32_t slot = find(wants_, latest, &number);
    if (slot == kNoSlot) return false;
    if (!hold(slot, number)) continue;
    note(slot, number, frame);
    return true;
  }
  return false;
}

void RingReader::give_back(std::uint32_t slot) {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  TM_ASSERT(slot < holds_.size() && holds_[slot] > 0);
  if (--holds_[slot] == 0) let_go(slot);
}

// --- Waiting -----------------------------------------------------------------------------------------------------

// The lock first: a writer that ends says so before it lets the lock go.
ReadOutcome RingReader::writer_state() {
  if (lock_->is_locked_by_another(RingFile::kWriterByte)) return ReadOutcome::nothing_yet;
  if (file_->header().writers.load() == 0) return ReadOutcome::nothing_yet;  // none has come yet
  return file_->header().ended.load() != 0 ? ReadOutcome::ended : ReadOutcome::writer_gone;
}

ReadOutcome RingReader::take(std::uint64_t nanoseconds, HeldFrame* frame) {
  if (is_forked()) return ReadOutcome::nothing_yet;
  if (take_now(frame)) return ReadOutcome::frame;
  if (nanoseconds != 0) {
    RingHeader& header = file_->header();
    const std::uint32_t seen = header.published.load();
    header.readers_sleep.store(1);
    if (take_now(frame)) return ReadOutcome::frame;  // what came before `seen` was read
    os::wait_while(header.published, seen, std::min(nanoseconds, kGlance));
    if (take_now(frame)) return ReadOutcome::frame;
  }
  const ReadOutcome state = writer_state();
  if (state != ReadOutcome::nothing_yet && take_now(frame)) return ReadOutcome::frame;  // its last one
  return state;
}

Status RingReader::wait(const Wait& wait, bool for_a_writer, HeldFrame* frame, ReadOutcome* outcome) {
  const auto is_over = [&](std::uint64_t nanoseconds) {
    if (closed_.load()) return true;
    *outcome = take(nanoseconds, frame);
    return *outcome == ReadOutcome::frame || (!for_a_writer && *outcome != ReadOutcome::nothing_yet);
  };
  if (!is_over(0)) TM_TRY(wait.until(is_over));
  if (*outcome == ReadOutcome::frame || !closed_.load()) return {};
  return Status::fail(Code::use_after_release, "this end of the frame ring was closed", 0);
}

void RingReader::close() {
  closed_.store(true);
  os::wake_waiters(file_->header().published);
}

}  // namespace tensormem

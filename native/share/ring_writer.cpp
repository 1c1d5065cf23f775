#include "share/ring_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem {

namespace {

namespace os = host::os;

constexpr std::uint64_t kGlance = 20'000'000;       // how often a waiting writer looks whether readers still live
constexpr std::uint64_t kLastNumber = 1ULL << 62;   // no camera gets there: what is above was scribbled
constexpr std::uint32_t kNobody = kMaxReaders + 1;  // no reader of our own to leave out

}  // namespace

Status RingWriter::attach(RingFilePtr file, std::unique_ptr<RingWriter>* writer) {
  std::unique_ptr<MemberLock> lock;
  TM_TRY(MemberLock::open(file->fd(), &lock));
  writer->reset();
  const int refused = lock->try_lock(RingFile::kWriterByte);
  if (refused == EAGAIN) return {};
  if (refused != 0) return Status::driver_error(refused, "fcntl(F_OFD_SETLK)");
  std::unique_ptr<RingWriter> made(new RingWriter(std::move(file), std::move(lock)));
  made->recover();
  *writer = std::move(made);
  return {};
}

// Whatever kWriting is on belongs to a dead writer and is half written. A frame that was complete and not yet announced
// is one above the newest: it is announced now. A reader may see a slot while this goes on, since it looks at kWriting.
void RingWriter::recover() {
  RingHeader& header = file_->header();
  std::uint64_t latest = header.latest.load();
  if (latest >= kLastNumber) latest = 0;
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i) {
    RingSlot& slot = file_->slot(i);
    if ((slot.word.load() & ~RingSlot::kReaders) == 0) continue;
    slot.number.store(0);
    slot.word.fetch_and(RingSlot::kReaders);
  }
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i)
    if (file_->slot(i).number.load() == latest + 1) {
      ++latest;
      break;
    }
  header.latest.store(latest);
  next_number_ = latest + 1;
  header.writer_pid.store(static_cast<std::uint32_t>(getpid()));
  header.ended.store(0);
  header.writers.fetch_add(1);
  file_->reap_dead_readers(*lock_, kNobody);
  file_->tell_readers();
}

RingWriter::~RingWriter() {
  TM_WALK(is_valid());
  if (is_forked()) return;
  if (slot_ != kNoSlot) {
    file_->slot(slot_).number.store(0);
    file_->slot(slot_).word.fetch_and(~RingSlot::kWriting);
  }
  lock_->unlock(RingFile::kWriterByte);
  file_->tell_readers();
}

void RingWriter::end() {
  if (is_forked()) return;
  file_->header().ended.store(1);
  file_->tell_readers();
}

// --- Finding a slot ----------------------------------------------------------------------------------------------

// Frames below it are needed by nobody. A reader that joins at this moment is not seen; it starts with a frame that is
// newer than any we can take (ring_reader says why).
std::uint64_t RingWriter::lowest_wanted() {
  std::uint64_t lowest = RingMember::kNothing;
  for (std::uint32_t i = 0; i < kMaxReaders; ++i)
    if (file_->member(i).joined.load() != 0) lowest = std::min(lowest, file_->member(i).wants.load());
  return std::max<std::uint64_t>(1, lowest);  // an empty slot counts as frame 0
}

// The free slot with the oldest frame below `limit`: an empty one, then the one that is missed least. A number that we
// have not given is no frame.
std::uint32_t RingWriter::find(std::uint64_t limit, std::uint32_t tried) {
  std::uint32_t best = kNoSlot;
  std::uint64_t oldest = limit;
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i) {
    if (i == slot_ || i == tried) continue;
    RingSlot& slot = file_->slot(i);
    std::uint64_t number = slot.number.load();
    if (number >= next_number_) number = 0;
    if (number >= oldest || slot.word.load() != 0) continue;
    best = i;
    oldest = number;
  }
  return best;
}

std::uint32_t RingWriter::claim() {
  const bool overwrites = file_->format().when_full == WhenFull::overwrite;
  std::uint32_t tried = kNoSlot;
  for (std::uint32_t i = 0; i < 4 * file_->format().slot_count; ++i) {
    const std::uint32_t found = find(overwrites ? RingMember::kNothing : lowest_wanted(), tried);
    if (found == kNoSlot) return kNoSlot;
    std::uint64_t free = 0;
    RingSlot& slot = file_->slot(found);
    if (slot.word.compare_exchange_strong(free, RingSlot::kWriting, std::memory_order_acq_rel)) {
      slot.number.store(0);
      return found;
    }
    tried = found;  // a reader was faster
  }
  return kNoSlot;
}

// When nothing is free, perhaps only the dead hold it; or somebody scribbled kWriting over a slot that is not ours.
std::uint32_t RingWriter::claim_or_reap() {
  const std::uint32_t found = claim();
  if (found != kNoSlot) return found;
  file_->reap_dead_readers(*lock_, kNobody);
  for (std::uint32_t i = 0; i < file_->format().slot_count; ++i)
    if (i != slot_ && (file_->slot(i).word.load() & ~RingSlot::kReaders) != 0)
      file_->slot(i).word.fetch_and(RingSlot::kReaders);
  return claim();
}

std::uint32_t RingWriter::begin(std::uint64_t nanoseconds) {
  if (is_forked()) return kNoSlot;
  if (writing_.exchange(true, std::memory_order_acquire)) return kBusy;
  if (slot_ == kNoSlot) slot_ = claim_or_reap();
  if (slot_ == kNoSlot && nanoseconds != 0) {
    RingHeader& header = file_->header();
    const std::uint32_t seen = header.released.load();
    header.writer_sleeps.store(1);
    slot_ = claim();  // what came back before `seen` was read
    if (slot_ == kNoSlot) os::wait_while(header.released, seen, std::min(nanoseconds, kGlance));
    if (slot_ == kNoSlot) slot_ = claim_or_reap();
  }
  const std::uint32_t found = slot_;
  (found == kNoSlot ? writing_ : begun_).store(found != kNoSlot, std::memory_order_release);
  return found;
}

Status RingWriter::wait(const Wait& wait, std::uint32_t* slot) {
  const auto is_over = [&](std::uint64_t nanoseconds) {
    if (closed_.load()) return true;
    *slot = begin(nanoseconds);
    return *slot != kNoSlot;
  };
  *slot = kNoSlot;
  if (!is_over(0)) TM_TRY(wait.until(is_over));
  if (*slot != kNoSlot) return {};
  return Status::fail(Code::use_after_release, "this end of the frame ring was closed", 0);
}

void RingWriter::close() {
  closed_.store(true);
  os::wake_waiters(file_->header().released);
}

// --- Publishing --------------------------------------------------------------------------------------------------

// A writer that never waits takes its next slot before it gives this one away: so it always has one, and what is too
// much is dropped here.
std::uint64_t RingWriter::publish(std::uint64_t timestamp) {
  if (is_forked()) return 0;
  if (!begun_.exchange(false, std::memory_order_acquire)) return kNotBegun;
  TM_ASSERT(writing_ && slot_ != kNoSlot);
  std::uint32_t next = kNoSlot;
  if (file_->format().when_full != WhenFull::wait) {
    next = claim_or_reap();
    if (next == kNoSlot) {
      file_->header().dropped.fetch_add(1);
      writing_.store(false, std::memory_order_release);
      return 0;
    }
  }
  const std::uint64_t number = next_number_++;
  RingSlot& slot = file_->slot(slot_);
  slot.timestamp.store(timestamp, std::memory_order_relaxed);
  slot.number.store(number, std::memory_order_relaxed);
  slot.word.fetch_and(~RingSlot::kWriting, std::memory_order_release);
  // Killed before this line, the frame is announced by the next writer.
  file_->header().latest.store(number);
  file_->tell_readers();
  slot_ = next;
  writing_.store(false, std::memory_order_release);
  return number;
}

// Kept in hand, also by one that waits: the next frame goes there.
void RingWriter::abandon() {
  if (begun_.exchange(false, std::memory_order_acquire)) writing_.store(false, std::memory_order_release);
}

}  // namespace tensormem

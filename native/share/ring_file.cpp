#include "share/ring_file.hpp"

#include <cerrno>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/host/os.hpp"
#include "tensor/dlpack_check.hpp"
#include "tensor/layout.hpp"

namespace tensormem {

namespace {

namespace os = host::os;

constexpr std::uint64_t kMagic = 0x31'67'6E'72'6D'74'00'FFULL;  // no text file begins like that
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kSlotsAt = 4096;
constexpr std::uint64_t kMostBytes = 1ULL << 46;  // of all slots; no machine has more

Status refuse(const char* why) { return Status::fail(Code::invalid_argument, why); }

std::uint64_t file_size(std::uint32_t slot_count) {
  return align_up(kSlotsAt + slot_count * sizeof(RingSlot) + kMaxReaders * sizeof(RingMember), os::page_size());
}

std::uint32_t pack(dlpack::DataType dtype) {
  return dtype.code | std::uint32_t{dtype.bits} << 8 | std::uint32_t{dtype.lanes} << 16;
}

dlpack::DataType unpack(std::uint32_t packed) {
  return {static_cast<std::uint8_t>(packed), static_cast<std::uint8_t>(packed >> 8),
          static_cast<std::uint16_t>(packed >> 16)};
}

}  // namespace

Status FrameFormat::measure() {
  if (frame_count < 1 || frame_count > kMaxFrames) return refuse("a ring has from 1 to 1,024 frames");
  if (when_full > WhenFull::overwrite || mode > ReadMode::every) return refuse("the ring has an unknown way to work");
  if (ndim < 0 || ndim > kMaxFrameDims) return refuse("a frame has at most 8 dimensions");
  if (!dlpack::is_known(dtype) || dtype.lanes == 0) return refuse("the frames have an unknown element type");
  ElementWidth width;
  width.bits = static_cast<std::uint32_t>(dtype.bits) * dtype.lanes;
  width.packed = width.bits % 8 != 0;
  Reach reach;
  TM_TRY(measure_layout(ndim, shape.data(), nullptr, width, Code::invalid_size, &reach));
  slot_count = frame_count + (when_full == WhenFull::wait ? 0 : 1);
  if (reach.above == 0) return refuse("a frame without elements cannot be shared");
  if (reach.above > kMostBytes / slot_count - os::page_size())
    return Status::fail(Code::invalid_size, "the frames are larger than any memory", reach.above);
  frame_bytes = reach.above;
  slot_bytes = align_up(frame_bytes, os::page_size());
  return {};
}

Status RingFile::create(FrameFormat format, RingFilePtr* file) {
  TM_TRY(format.measure());
  const RingFilePtr made(new RingFile);
  made->format_ = format;
  const std::uint64_t size = file_size(format.slot_count);
  if (const int error = os::create_memfd("tensormem-ring", &made->fd_); error != 0)
    return Status::driver_error(error, "memfd_create");
  if (const int error = os::restrict_to_owner(made->fd_); error != 0) return Status::driver_error(error, "fchmod");
  if (const int error = os::resize_file(made->fd_, size); error != 0) return Status::driver_error(error, "ftruncate");
  if (const int error = os::seal_size(made->fd_); error != 0) return Status::driver_error(error, "fcntl(F_ADD_SEALS)");
  TM_TRY(made->map(size));
  made->write_header();
  *file = made;
  return {};
}

Status RingFile::attach(int fd, RingFilePtr* file) {
  const RingFilePtr found(new RingFile);
  if (const int error = os::duplicate(fd, &found->fd_); error != 0)
    return error == EBADF ? refuse("the file descriptor is not open") : Status::driver_error(error, "fcntl");
  std::uint64_t size = 0;
  TM_TRY(found->check_file(&size));
  TM_TRY(found->map(size));
  TM_TRY(found->check_header(size));
  *file = found;
  return {};
}

Status RingFile::check_file(std::uint64_t* size) const {
  os::FileFacts facts;
  if (const int error = os::describe_file(fd_, &facts); error != 0) return Status::driver_error(error, "fstat");
  if (!facts.memory_file) return refuse("the file is no memory file, so it is no frame ring");
  if (!facts.shrink_sealed || !facts.grow_sealed)
    return refuse("the file is not sealed: its size could change under us");
  if (facts.size < file_size(1) || facts.size > file_size(kMaxFrames + 1))
    return refuse("the file does not have the size of a frame ring");
  *size = facts.size;
  return {};
}

Status RingFile::map(std::uint64_t size) {
  if (const int error = os::map_shared(fd_, size, &address_); error != 0) return Status::driver_error(error, "mmap");
  size_ = size;
  header_ = reinterpret_cast<RingHeader*>(address_);
  slots_ = reinterpret_cast<RingSlot*>(address_ + kSlotsAt);
  members_ = reinterpret_cast<RingMember*>(slots_ + format_.slot_count);
  return {};
}

void RingFile::write_header() {
  header_->version.store(kVersion);
  header_->frame_count.store(format_.frame_count);
  header_->when_full.store(static_cast<std::uint32_t>(format_.when_full));
  header_->mode.store(static_cast<std::uint32_t>(format_.mode));
  header_->dtype.store(pack(format_.dtype));
  header_->ndim.store(format_.ndim);
  for (std::size_t i = 0; i < kMaxFrameDims; ++i) header_->shape[i].store(format_.shape[i]);
  header_->frame_bytes.store(format_.frame_bytes);
  header_->magic.store(kMagic);
}

// Each number is read once, into our own memory, and checked there.
Status RingFile::check_header(std::uint64_t size) {
  if (header_->magic.load() != kMagic) return refuse("the file does not begin like a frame ring");
  if (header_->version.load() != kVersion) return refuse("the frame ring was made by another version of tensormem");
  FrameFormat read;
  read.frame_count = header_->frame_count.load();
  read.when_full = static_cast<WhenFull>(header_->when_full.load());
  read.mode = static_cast<ReadMode>(header_->mode.load());
  read.dtype = unpack(header_->dtype.load());
  read.ndim = header_->ndim.load();
  for (std::size_t i = 0; i < kMaxFrameDims; ++i) read.shape[i] = header_->shape[i].load();
  TM_TRY(read.measure());
  if (size != file_size(read.slot_count) || read.frame_bytes != header_->frame_bytes.load())
    return refuse("the frame ring does not agree with itself about its size");
  format_ = read;
  members_ = reinterpret_cast<RingMember*>(slots_ + format_.slot_count);
  return {};
}

bool RingFile::is_valid() const {
  if (format_.frame_count == 0 || address_ == 0) return true;  // refused before it was believed, or never mapped
  FrameFormat again = format_;
  if (!again.measure().ok() || again.slot_count != format_.slot_count || again.slot_bytes != format_.slot_bytes)
    return false;
  const auto end = reinterpret_cast<std::uint64_t>(members_ + kMaxReaders);
  return reinterpret_cast<std::uint64_t>(members_) == reinterpret_cast<std::uint64_t>(slots_ + format_.slot_count) &&
         end <= address_ + size_;
}

RingFile::~RingFile() {
  TM_WALK(is_valid());
  if (address_ != 0) os::unmap(address_, size_);
  if (fd_ >= 0) os::close(fd_);
}

// --- Who lives ---------------------------------------------------------------------------------------------------

bool RingFile::holds_any(std::uint32_t reader) const {
  const std::uint64_t bit = 1ULL << reader;
  for (std::uint32_t i = 0; i < format_.slot_count; ++i)
    if ((slots_[i].word.load(std::memory_order_relaxed) & bit) != 0) return true;
  return false;
}

// Killed in the middle, the next one does the same again: nothing here depends on what was there before.
void RingFile::forget(std::uint32_t reader) {
  members_[reader].joined.store(0);
  for (std::uint32_t i = 0; i < format_.slot_count; ++i) slots_[i].word.fetch_and(~(1ULL << reader));
  members_[reader].pid.store(0);
  members_[reader].wants.store(RingMember::kNothing);
  members_[reader].taken.store(0);
  members_[reader].missed.store(0);
}

std::uint32_t RingFile::reap_dead_readers(MemberLock& lock, std::uint32_t own) {
  std::uint32_t reaped = 0;
  for (std::uint32_t i = 0; i < kMaxReaders; ++i) {
    if (i == own || (members_[i].joined.load() == 0 && !holds_any(i))) continue;
    if (lock.try_lock(i) != 0) continue;
    forget(i);
    lock.unlock(i);
    ++reaped;
  }
  if (reaped != 0) tell_writer();
  return reaped;
}

std::vector<RingReaderFacts> RingFile::readers() {
  std::vector<RingReaderFacts> found;
  for (std::uint32_t i = 0; i < kMaxReaders; ++i) {
    const RingMember& each = members_[i];
    if (each.joined.load() == 0) continue;
    found.push_back(
        {each.pid.load(), each.wants.load() != RingMember::kNothing, each.taken.load(), each.missed.load()});
  }
  return found;
}

// --- Waking ------------------------------------------------------------------------------------------------------
// A sleeper sets a flag and then sleeps while the word is what it saw before it looked; the waker changes the word
// first and looks at the flag second. Both are sequentially consistent, so either the flag is seen, or the sleeper does
// not go to sleep. A flag and not a count: a count would be wrong for ever once a sleeper was killed.

void RingFile::tell_readers() {
  header_->published.fetch_add(1);
  if (header_->readers_sleep.exchange(0) != 0) os::wake_waiters(header_->published);
}

void RingFile::tell_writer() {
  header_->released.fetch_add(1);
  if (header_->writer_sleeps.exchange(0) != 0) os::wake_waiters(header_->released);
}

}  // namespace tensormem

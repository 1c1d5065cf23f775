// Owns: the control file of a frame ring: its layout, what is checked before it is believed, and who of its members
// lives. The frames themselves are in another file, which readers map read-only; this one is writable for all of them.
//   What never changes (FrameFormat) is copied out and checked once, and never read again. Everything else may be
//   scribbled over by any member at any time: a number read from here is never an address, and an index only after a
//   comparison. The worst that a hostile member can do is to lose or delay frames.
// Must not know: when a slot may be written or read; ring_writer and ring_reader do.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "share/member_lock.hpp"
#include "tensor/dlpack.hpp"

namespace tensormem {

inline constexpr std::int32_t kMaxFrameDims = 8;
inline constexpr std::uint32_t kMaxFrames = 1024;
inline constexpr std::uint32_t kMaxReaders = 62;

// What the writer does when all frames are unread or in use.
enum class WhenFull : std::uint32_t { wait = 0, drop = 1, overwrite = 2 };
// What a reader asks for: the newest frame, or each one in turn.
enum class ReadMode : std::uint32_t { latest = 0, every = 1 };

struct FrameFormat {
  std::uint32_t frame_count = 0;
  WhenFull when_full = WhenFull::overwrite;
  ReadMode mode = ReadMode::latest;  // of readers that do not say
  dlpack::DataType dtype{};
  std::int32_t ndim = 0;
  std::array<std::int64_t, kMaxFrameDims> shape{};

  // From here on derived by `measure`; kept in the file only to be compared.
  std::uint64_t frame_bytes = 0;
  std::uint64_t slot_bytes = 0;  // from one slot to the next: whole pages
  std::uint32_t slot_count = 0;  // one more than frames when the writer never waits: it always has one in its hands
  Status measure();
};

struct alignas(64) RingHeader {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint32_t> frame_count;
  std::atomic<std::uint32_t> when_full;
  std::atomic<std::uint32_t> mode;
  std::atomic<std::uint32_t> dtype;  // code, bits << 8, lanes << 16
  std::atomic<std::int32_t> ndim;
  std::array<std::atomic<std::int64_t>, kMaxFrameDims> shape;
  std::atomic<std::uint64_t> frame_bytes;
  // Each group has a cache line of its own, because other processes write it.
  alignas(64) std::atomic<std::uint64_t> latest;  // the number of the newest frame; frames count from 1
  std::atomic<std::uint32_t> published;           // goes up with every frame, and when a writer comes or ends: a futex
  std::atomic<std::uint32_t> readers_sleep;       // set by who goes to sleep on `published`
  alignas(64) std::atomic<std::uint32_t> released;  // goes up when a slot came back: a futex
  std::atomic<std::uint32_t> writer_sleeps;
  alignas(64) std::atomic<std::uint64_t> dropped;  // frames that the writer finished and nobody will see
  std::atomic<std::uint32_t> writer_pid;
  std::atomic<std::uint32_t> writers;  // how many there have been
  std::atomic<std::uint32_t> ended;    // the last writer said that no frame follows
};

// `word` decides who may touch the slot: bit i is reader i, kWriting is the writer. They never hold it together.
struct alignas(64) RingSlot {
  static constexpr std::uint64_t kWriting = 1ULL << 63;
  static constexpr std::uint64_t kReaders = (1ULL << kMaxReaders) - 1;
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> number;  // of the frame in it; 0: none
  std::atomic<std::uint64_t> timestamp;
};

struct alignas(64) RingMember {
  static constexpr std::uint64_t kNothing = ~0ULL;
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint64_t> wants;  // the lowest frame it still needs; kNothing for one that takes the latest
  std::atomic<std::uint64_t> taken;
  std::atomic<std::uint64_t> missed;  // frames that it asked for and that were gone
};
static_assert(sizeof(RingSlot) == 64 && sizeof(RingMember) == 64 && sizeof(RingHeader) <= 4096);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// A reader as others see it.
struct RingReaderFacts {
  std::uint32_t pid = 0;
  bool every = false;
  std::uint64_t taken = 0;
  std::uint64_t missed = 0;
};

class RingFile {
 public:
  // The bytes whose locks prove life: reader i has byte i.
  static constexpr std::uint64_t kWriterByte = kMaxReaders;

  // A new file: for its owner alone, of a size that nobody can change.
  static Status create(FrameFormat format, std::shared_ptr<RingFile>* file);
  // Somebody else's, checked. The descriptor stays the caller's.
  static Status attach(int fd, std::shared_ptr<RingFile>* file);
  ~RingFile();
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  const FrameFormat& format() const { return format_; }
  RingHeader& header() { return *header_; }
  RingSlot& slot(std::uint32_t index) { return slots_[index]; }
  RingMember& member(std::uint32_t index) { return members_[index]; }
  int fd() const { return fd_; }
  std::uint64_t nbytes() const { return size_; }
  // What was copied out of the file and checked: it measures as it did, and everything lies in the mapping.
  bool is_valid() const;

  // Frees what dead readers hold and want. The lock of a reader is the proof: who gets it knows that the owner is gone,
  // and that nobody else cleans up there. `own` is left out, because one's own lock would be given again.
  std::uint32_t reap_dead_readers(MemberLock& lock, std::uint32_t own);
  std::vector<RingReaderFacts> readers();
  void tell_readers();
  void tell_writer();

 private:
  RingFile() = default;
  Status map(std::uint64_t size);
  Status check_file(std::uint64_t* size) const;
  Status check_header(std::uint64_t size);
  void write_header();
  bool holds_any(std::uint32_t reader) const;
  void forget(std::uint32_t reader);

  FrameFormat format_;
  int fd_ = -1;
  std::uint64_t address_ = 0;
  std::uint64_t size_ = 0;
  RingHeader* header_ = nullptr;
  RingSlot* slots_ = nullptr;
  RingMember* members_ = nullptr;
};

using RingFilePtr = std::shared_ptr<RingFile>;

}  // namespace tensormem

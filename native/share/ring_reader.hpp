// Owns: a reader's side of a frame ring: which frame is next, holding its slot, and knowing whether a writer lives.
// A slot is held by this reader's bit in the slot's word; when the process dies, whoever needs the slot clears the bit.
//   How a reader takes a slot: it sets its bit (acquire) and looks at what was there. kWriting: it is too late, and the
//   bit goes again. Otherwise the writer cannot have the slot any more, and the number says whether it is the frame
//   that was looked for. Letting go is a release, which pairs with the writer's acquire. Every frame in turn: `latest`
//   is read before the slots, and what is newer is left out; so all frames up to it were announced before the look
//   began, and the lowest number found is really the next one.
// Must not know: the frames' memory, Python. Threads may share one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/status.hpp"
#include "base/wait.hpp"
#include "share/ring_file.hpp"

namespace tensormem {

struct HeldFrame {
  std::uint32_t slot = 0;
  std::uint64_t number = 0;
  std::uint64_t timestamp = 0;
  std::uint64_t dropped = 0;  // frames between the last one taken and this one
};

enum class ReadOutcome : std::uint8_t { frame, nothing_yet, ended, writer_gone };

class RingReader {
 public:
  // From the newest frame on. Null and no failure: no place is left.
  static Status attach(RingFilePtr file, ReadMode mode, std::unique_ptr<RingReader>* reader);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  // The next frame, held until `give_back`. Sleeps a glance at most. That a writer is gone is said only when every
  // frame it left has been taken.
  ReadOutcome take(std::uint64_t nanoseconds, HeldFrame* frame);
  // The same for as long as `wait` goes on; with `for_a_writer`, also while there is none. `use_after_release` once it
  // is closed.
  Status wait(const Wait& wait, bool for_a_writer, HeldFrame* frame, ReadOutcome* outcome);
  // Nobody takes frames any more: whoever waits is woken. Those that are held stay.
  void close();
  void give_back(std::uint32_t slot);

  ReadMode mode() const { return mode_; }
  bool is_forked() const { return lock_->is_forked(); }
  // Of what nobody else can scribble over.
  bool is_valid() const { return index_ < kMaxReaders && holds_.size() == file_->format().slot_count && wants_ != 0; }

 private:
  RingReader(RingFilePtr file, std::unique_ptr<MemberLock> lock, std::uint32_t index, ReadMode mode);
  void join();
  bool take_now(HeldFrame* frame);
  std::uint32_t find(std::uint64_t from, std::uint64_t to, std::uint64_t* number);
  bool hold(std::uint32_t slot, std::uint64_t number);
  void let_go(std::uint32_t slot);
  void note(std::uint32_t slot, std::uint64_t number, HeldFrame* frame);
  ReadOutcome writer_state();

  const RingFilePtr file_;
  const std::unique_ptr<MemberLock> lock_;
  const std::uint32_t index_;
  const ReadMode mode_;
  std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::vector<std::uint32_t> holds_;  // by slot: several threads may hold the same frame
  std::uint64_t wants_ = 1;           // our own copy; the file's is for the writer
  bool first_ = true;
  std::atomic<bool> closed_{false};
};

}  // namespace tensormem

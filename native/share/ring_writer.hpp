// Owns: the writer's side of a frame ring: which slot may be written, when a frame becomes visible, and what happens
// when all frames are unread or in use. One writer at a time has the writer's lock; one that comes after a dead one
// first puts right what that one left.
//   Memory order: a slot is taken by compare-exchange from 0 with acquire, which pairs with the release by which
//   readers let go: their reads come before our writes. `publish` clears kWriting with release, which pairs with the
//   acquire by which a reader takes the slot: our writes come before its reads.
// Must not know: the frames' memory, Python. One frame at a time is written; a second thread is told so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "base/wait.hpp"
#include "share/ring_file.hpp"

namespace tensormem {

class RingWriter {
 public:
  static constexpr std::uint32_t kNoSlot = ~0U;
  static constexpr std::uint32_t kBusy = ~0U - 1;
  static constexpr std::uint64_t kNotBegun = ~0ULL;

  // Null and no failure: another process writes.
  static Status attach(RingFilePtr file, std::unique_ptr<RingWriter>* writer);
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // A slot to write into, or kNoSlot when there was none for that long. The same one until it is published or
  // abandoned. Sleeps a glance at most, then looks whether readers have died. kBusy: one is being written already.
  std::uint32_t begin(std::uint64_t nanoseconds);
  // The same for as long as `wait` goes on, but never kNoSlot. `use_after_release` once it is closed.
  Status wait(const Wait& wait, std::uint32_t* slot);
  // Nobody writes any more: whoever waits is woken.
  void close();
  // Makes it the newest frame and gives its number; 0 when it had to be dropped. kNotBegun, and nothing changes: no
  // slot is in hand, or another thread was first.
  std::uint64_t publish(std::uint64_t timestamp);
  // The slot is as if it had never been taken.
  void abandon();

  // No frame follows: readers are told. Without it the writer's end looks like its death.
  void end();
  bool is_forked() const { return lock_->is_forked(); }
  // Of what nobody else can scribble over. Not while another thread writes.
  bool is_valid() const {
    const bool has_slot = slot_ != kNoSlot;
    return next_number_ != 0 && (!has_slot || slot_ < file_->format().slot_count) &&
           (!begun_ || (writing_ && has_slot));
  }

 private:
  RingWriter(RingFilePtr file, std::unique_ptr<MemberLock> lock) : file_(std::move(file)), lock_(std::move(lock)) {}
  void recover();
  std::uint64_t lowest_wanted();
  std::uint32_t find(std::uint64_t limit, std::uint32_t tried);
  std::uint32_t claim();
  std::uint32_t claim_or_reap();

  const RingFilePtr file_;
  const std::unique_ptr<MemberLock> lock_;
  std::uint64_t next_number_ = 1;
  std::uint32_t slot_ = kNoSlot;  // the one with kWriting; no other has it
  std::atomic<bool> closed_{false};
  std::atomic<bool> writing_{false};  // taken by `begin`, given back by the other two
  std::atomic<bool> begun_{false};    // `begin` gave a slot, which one of the other two takes
};

}  // namespace tensormem

// Owns: the proof that a member of something shared by processes lives: a lock on one byte of its file, through an open
// file description of its own. The kernel drops it however the process ends, so nobody has to trust a pid, which may
// belong to another process by now. Must not know: what the bytes stand for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.hpp"

namespace tensormem {

class MemberLock {
 public:
  // Opens the file behind `fd` anew: a descriptor that came from elsewhere shares its locks with the sender.
  static Status open(int fd, std::unique_ptr<MemberLock>* lock);
  ~MemberLock();
  MemberLock(const MemberLock&) = delete;
  MemberLock& operator=(const MemberLock&) = delete;

  // 0 when it is ours; EAGAIN when somebody else has it; or why the system refuses. One's own byte would be given
  // again: never ask for it.
  int try_lock(std::uint64_t byte) noexcept;
  void unlock(std::uint64_t byte) noexcept;
  // Whether somebody else has it now. When the system does not say, they live: nothing is taken on a doubt.
  bool is_locked_by_another(std::uint64_t byte) noexcept;

  // A forked child has the parent's locks: it lets go of them at once and has no part in anything afterwards.
  bool is_forked() const noexcept { return fd_.load(std::memory_order_relaxed) < 0; }
  void abandon_in_child() noexcept;

 private:
  MemberLock() = default;
  std::atomic<int> fd_{-1};
};

}  // namespace tensormem

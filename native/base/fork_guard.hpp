// Owns: locks across a fork. The child has one thread: a lock that another thread held at that moment would stay locked
// for ever, and what it guards half changed. So every long-lived lock registers here, a fork takes all of them first,
// the youngest first, and both sides let them go: whoever nests two of them takes the younger one outside. Must not
// know: what a lock guards.
#pragma once

#include <cstdint>

namespace tensormem {

// How many forks lie behind this process: those it made, and those that made it, since the first lock registered.
std::uint64_t fork_count() noexcept;

// Declare one right behind the lock it is for, in the same object.
class ForkGuard {
 public:
  template <typename Lock>
  explicit ForkGuard(Lock& lock)
      : lock_(&lock),
        acquire_([](void* which) { static_cast<Lock*>(which)->lock(); }),
        release_([](void* which) { static_cast<Lock*>(which)->unlock(); }) {
    enlist();
  }
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  friend struct ForkGuards;
  void enlist();

  void* const lock_;
  void (*const acquire_)(void*);
  void (*const release_)(void*);
  ForkGuard* older_ = nullptr;
  ForkGuard* younger_ = nullptr;
};

}  // namespace tensormem

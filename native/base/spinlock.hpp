// Owns: the lock for sections of a few dozen nanoseconds: test-and-test-and-set, then yield, so that a holder who lost
// its core is not starved. Who has to yield lets the caller's lock go. Sections that call a driver use Mutex instead.
#pragma once

#include <sched.h>

#include <atomic>

#include "base/blocking.hpp"

namespace tensormem {

class Spinlock {
 public:
  void lock() noexcept {
    if (!locked_.exchange(true, std::memory_order_acquire)) [[likely]]
      return;
    lock_slow();
  }
  bool try_lock() noexcept {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void lock_slow() noexcept {
    for (int spins = 0; spins < kSpinsBeforeYield; ++spins) {
      if (try_lock()) return;
      pause();
    }
    const BlockingRegion region;
    for (int spins = 1; !try_lock(); ++spins) {
      if (spins % kSpinsBeforeYield != 0) {
        pause();
      } else {
        sched_yield();
      }
    }
  }
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static constexpr int kSpinsBeforeYield = 64;
  std::atomic<bool> locked_{false};
};

}  // namespace tensormem

// Owns: a door that is opened once, and those who wait at it. Must not know: what happens behind it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/ending.hpp"
#include "base/wait.hpp"
#include "driver/host/os.hpp"

namespace tensormem {

// Whether a wait ended because its own time was up: all others end with a failure.
inline bool is_own_timeout(const Status& waited) noexcept { return waited.code() == Code::timed_out && !is_ending(); }

class Latch {
 public:
  bool is_open() const noexcept { return word_.load(std::memory_order_acquire) != 0; }
  // Opening twice is opening once.
  void open() noexcept {
    word_.store(1, std::memory_order_release);
    host::os::wake_waiters(word_);
  }
  Status wait(const Wait& wait) const {
    if (is_open()) return {};
    return wait.until([this](std::uint64_t nanoseconds) {
      if (nanoseconds != 0 && !is_open()) host::os::wait_while(word_, 0, nanoseconds);
      return is_open();
    });
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace tensormem

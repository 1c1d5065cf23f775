// Owns: the one way to wait. Whoever waits says how long it may take and whether it can stop half way; here the
// caller's lock is let go (a BlockingRegion), signals are heard, the time is kept, and the end of the process ends the
// wait too. Look first and wait only if you must: the way in costs nothing but what it does. Hold no lock over a wait.
// Must not know: what is waited for; Python, which installs the ear.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/blocking.hpp"
#include "base/status.hpp"

namespace tensormem {

// Whether a signal wants the calling thread to stop: `interrupted`, with what its handler raised. Called with the
// caller's lock let go and no lock of ours held; handlers run inside.
using SignalEar = Status (*)();
void install_signal_ear(SignalEar ear);

// The steady clock.
std::uint64_t steady_nanoseconds() noexcept;

class Wait {
 public:
  static constexpr std::uint64_t kForEver = ~0ULL;

  // For what cannot stop half way, such as a destructor: ends with what is waited for, or with the process.
  static Wait until_done() noexcept { return Wait(kForEver, Kind::until_done, kWork); }
  // For a thread of ours, which stops with the process: nothing else ends it.
  static Wait of_worker() noexcept { return Wait(kForEver, Kind::of_worker, kWork); }
  // For what can fail: ends also when the time is up (`timed_out`, with `what`, which is static text) or a
  // signal was heard (`interrupted`).
  static Wait of_caller(std::uint64_t nanoseconds = kForEver, const char* what = kWork) noexcept {
    return Wait(nanoseconds, Kind::of_caller, what);
  }

  // Calls `sleep(nanoseconds)` until it returns true. It sleeps at most that long, less when what is waited for
  // happens, and says whether it has; with 0 it only looks.
  template <typename Sleep>
  Status until(Sleep&& sleep) const {
    const BlockingRegion region;
    while (true) {
      const std::uint64_t left = time_left();
      if (sleep(std::min(left, kSlice))) return {};
      TM_TRY(check(left));
    }
  }
  // For what can only be asked about: `ask(&done)` again and again, with pauses that grow with the time it takes.
  template <typename Ask>
  Status by_asking(Ask&& ask) const {
    Status asked;
    bool done = false;
    const std::uint64_t start = steady_nanoseconds();
    TM_TRY(until([&](std::uint64_t most) {
      if (most != 0) pause_since(start, most);
      asked = ask(&done);
      return done || !asked.ok();
    }));
    return asked;
  }

 private:
  enum class Kind : std::uint8_t { until_done, of_worker, of_caller };

  Wait(std::uint64_t nanoseconds, Kind kind, const char* what) noexcept;
  std::uint64_t time_left() const noexcept;
  Status check(std::uint64_t left) const noexcept;
  static void pause_since(std::uint64_t start, std::uint64_t most) noexcept;

  static constexpr const char* kWork = "the work is not done";
  static constexpr std::uint64_t kSlice = 20'000'000;  // signals are heard, and dead peers noticed, this often

  std::uint64_t nanoseconds_;
  std::uint64_t deadline_;
  const char* what_;
  Kind kind_;
};

}  // namespace tensormem

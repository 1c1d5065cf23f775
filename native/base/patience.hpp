// Owns: waiting with an end for something that can only be asked about: pauses that grow, until the time is up.
// Must not know: what is waited for. Open a BlockingRegion first, and hold no lock over `wait`.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <type_traits>

namespace tensormem {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Patience(std::uint64_t most_ns) : most_(most_ns), start_(Clock::now()) {}

  // Lets some time pass; false when there is none left.
  bool wait() {
    const auto passed = static_cast<std::uint64_t>((Clock::now() - start_).count());
    if (passed >= most_) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause_, most_ - passed)));
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  static_assert(std::is_same_v<Clock::duration, std::chrono::nanoseconds>);
  static constexpr std::uint64_t kLongestPause = 1'000'000;

  const std::uint64_t most_;
  const Clock::time_point start_;
  std::uint64_t pause_ = 20'000;
};

}  // namespace tensormem

#include "base/wait.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include "base/ending.hpp"

namespace tensormem {

namespace {

std::atomic<SignalEar> g_ear{nullptr};

constexpr std::uint64_t kAwake = 50'000;            // what ends sooner is not slept over
constexpr std::uint64_t kLongestPause = 1'000'000;  // between two questions

std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from - std::min(from, what); }

}  // namespace

std::atomic<std::uint64_t> g_last_moment{kNotEnding};

std::uint64_t steady_nanoseconds() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void begin_ending(std::uint64_t nanoseconds) noexcept {
  std::uint64_t before = kNotEnding;
  g_last_moment.compare_exchange_strong(before, steady_nanoseconds() + nanoseconds);
}

void install_signal_ear(SignalEar ear) { g_ear.store(ear, std::memory_order_release); }

Wait::Wait(std::uint64_t nanoseconds, Kind kind, const char* what) noexcept
    : nanoseconds_(nanoseconds), deadline_(kForEver), what_(what), kind_(kind) {
  const std::uint64_t now = nanoseconds == kForEver ? 0 : steady_nanoseconds();
  if (nanoseconds < kForEver - now) deadline_ = now + nanoseconds;
}

std::uint64_t Wait::time_left() const noexcept {
  if (kind_ == Kind::of_worker) return kForEver;
  const std::uint64_t last = std::min(deadline_, g_last_moment.load(std::memory_order_relaxed));
  return last == kForEver ? kForEver : less(last, steady_nanoseconds());
}

Status Wait::check(std::uint64_t left) const noexcept {
  if (left == 0) {
    const bool own = deadline_ <= g_last_moment.load(std::memory_order_relaxed);
    return Status::fail(Code::timed_out, own ? what_ : "the interpreter is ending, and does not wait",
                        own ? nanoseconds_ : 0);
  }
  if (kind_ != Kind::of_caller) return {};
  const SignalEar ear = g_ear.load(std::memory_order_acquire);
  return ear == nullptr ? Status() : ear();
}

void Wait::pause_since(std::uint64_t start, std::uint64_t most) noexcept {
  const std::uint64_t passed = steady_nanoseconds() - start;
  if (passed < kAwake) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::min({passed / 8, kLongestPause, most})));
}

}  // namespace tensormem

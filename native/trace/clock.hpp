// Owns: the clock that stamps events: the processor's counter where it ticks evenly through every sleep, otherwise the
// system's monotonic clock. Ticks become nanoseconds later, between two points at which both clocks were read, so no
// time is spent on calibrating and a drift cannot add up. Must not know: events.
#pragma once

#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace tensormem {

inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

// Whether the processor promises a counter that neither stops nor changes its rate.
inline bool counter_is_invariant() noexcept {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#else
  return false;
#endif
}

// Read once, when the library is loaded.
extern const bool kTraceUsesCounter;

inline std::uint64_t trace_ticks() noexcept {
#if defined(__x86_64__)
  if (kTraceUsesCounter) [[likely]]
    return __rdtsc();
#endif
  return monotonic_ns();
}

// The line between the two newest points at which both clocks were read. Continuous, and never goes back.
class TickScale {
 public:
  void start() noexcept {
    start_ns_ = monotonic_ns();
    old_ticks_ = new_ticks_ = trace_ticks();
    old_ns_ = new_ns_ = 0;
  }
  // From here on `to_ns` is right for ticks up to now.
  void advance() noexcept {
    const std::uint64_t ns = monotonic_ns() - start_ns_;
    const std::uint64_t ticks = trace_ticks();
    if (ticks <= new_ticks_ || ns <= new_ns_) return;
    old_ticks_ = new_ticks_;
    old_ns_ = new_ns_;
    new_ticks_ = ticks;
    new_ns_ = ns;
    rate_ = static_cast<double>(new_ns_ - old_ns_) / static_cast<double>(new_ticks_ - old_ticks_);
  }
  std::uint64_t to_ns(std::uint64_t ticks) const noexcept {
    const double past = static_cast<double>(static_cast<std::int64_t>(ticks - old_ticks_)) * rate_;
    const auto ns = static_cast<std::int64_t>(old_ns_) + static_cast<std::int64_t>(past);
    return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
  }
  std::uint64_t now_ns() const noexcept { return new_ns_; }
  std::uint64_t start_ns() const noexcept { return start_ns_; }
  std::uint64_t start_ticks() const noexcept { return old_ticks_; }

 private:
  std::uint64_t start_ns_ = 0;
  std::uint64_t old_ticks_ = 0;
  std::uint64_t old_ns_ = 0;
  std::uint64_t new_ticks_ = 0;
  std::uint64_t new_ns_ = 0;
  double rate_ = 0.0;
};

}  // namespace tensormem

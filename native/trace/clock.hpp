// Owns: the clock that stamps events: the processor's counter where it ticks evenly through every sleep, otherwise the
// system's monotonic clock. Ticks become nanoseconds later (tick_scale.hpp). Must not know: events.
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

}  // namespace tensormem

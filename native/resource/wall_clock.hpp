// Owns: the wall clock and the number of the calling thread, for records that people read later.
// Must not know: who records what.
#pragma once

#include <cstdint>
#include <ctime>

namespace tensormem {

// Nanoseconds since 1970, UTC.
inline std::int64_t wall_clock_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The system's number of the calling thread, as debuggers and RMM's log show it. Right in a forked child too.
std::uint32_t thread_number() noexcept;

}  // namespace tensormem

// Owns: the end of the process, as native code sees it: from a moment on no new work is taken, and no wait lasts longer
// than the time that was set for all of them together. What is not done by then is left as it is: its memory is never
// freed, its threads stop with the process. Must not know: Python, which says when the end begins.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.hpp"

namespace tensormem {

// The first call counts.
void begin_ending(std::uint64_t nanoseconds) noexcept;

inline constexpr std::uint64_t kNotEnding = ~0ULL;
// When all waits are over, on the steady clock in nanoseconds.
extern std::atomic<std::uint64_t> g_last_moment;

inline bool is_ending() noexcept { return g_last_moment.load(std::memory_order_relaxed) != kNotEnding; }

// Refuses work for a queue that may not be emptied any more.
inline Status check_not_ending(std::uint64_t stream) noexcept {
  if (!is_ending()) [[likely]]
    return {};
  return Status::fail(Code::stream_misuse, "the interpreter is ending: a stream takes no new work", stream);
}

}  // namespace tensormem

// Owns: all that a layer which reports needs to know of observers: whether anybody records, and where an event goes.
// When nobody does, the cost is one load and one branch that is never taken.
//   if (trace_is_on()) [[unlikely]] ... fill a TraceEvent ... trace_record(&event);
// Must not know: files, readers.
#pragma once

#include <atomic>
#include <cstdint>

#include "trace/clock.hpp"
#include "trace/event.hpp"

namespace tensormem {

extern std::atomic<bool> g_trace_on;

inline bool trace_is_on() noexcept { return g_trace_on.load(std::memory_order_relaxed); }

// Any thread, also while it holds locks: nothing is taken but, for a thread's first event, the list of rings. If the
// thread is far ahead of the file it waits for a moment, and then the event is dropped and counted.
void trace_record_at(const TraceEvent& event) noexcept;  // the caller has stamped it
inline void trace_record(TraceEvent* event) noexcept {
  event->time = trace_ticks();
  trace_record_at(*event);
}

// The number of the calling thread's stack; 0 unless stacks are recorded, and where there is none.
std::uint32_t trace_stack() noexcept;
// Between the two, what this thread reports has the stack of the first call: for whoever is about to let go of a lock
// without which nobody can look at the stack.
void trace_hold_stack() noexcept;
void trace_drop_stack() noexcept;

// While one lives, what this thread reports was asked for by a resource, not by its caller.
class TraceNesting {
 public:
  TraceNesting() noexcept;
  ~TraceNesting();
  TraceNesting(const TraceNesting&) = delete;
  TraceNesting& operator=(const TraceNesting&) = delete;
  // How many stand around this one.
  std::uint8_t depth() const noexcept { return depth_; }

 private:
  std::uint8_t depth_;
};

}  // namespace tensormem

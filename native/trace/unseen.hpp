// Owns: one distinction: while a TraceUnseen lives, what this thread asks of the C library is not looked at, because it
// is the recorder's own, or is reported by whoever made the TraceUnseen. Must not know: who looks.
#pragma once

#include <cstdint>

namespace tensormem {

class TraceUnseen {
 public:
  TraceUnseen() noexcept;
  ~TraceUnseen();
  TraceUnseen(const TraceUnseen&) = delete;
  TraceUnseen& operator=(const TraceUnseen&) = delete;

  // Whether one lives in this thread.
  static bool is_on() noexcept;
};

}  // namespace tensormem

// Owns: one distinction: while a TraceInside lives, what this thread reports was asked for by one of our own objects,
// in whatever call it does so: a pool that grows while it is made, a chunk that goes back when memory is trimmed. Must
// not know: who that object is.
#pragma once

#include <cstdint>

namespace tensormem {

class TraceInside {
 public:
  TraceInside() noexcept;
  ~TraceInside();
  TraceInside(const TraceInside&) = delete;
  TraceInside& operator=(const TraceInside&) = delete;

 private:
  std::uint8_t before_;
};

}  // namespace tensormem

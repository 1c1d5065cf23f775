// Owns: the courtesy before waiting. A caller may hold a lock that others need to make progress (Python's GIL); whoever
// is about to block, or to do something slow, opens a BlockingRegion first, and the lock is let go for its duration.
// The fast paths above pay nothing for it. Open one only while holding no lock of ours: somebody who holds the caller's
// lock may be waiting for it. Must not know: Python. The bindings install the two functions once.
#pragma once

#include <atomic>

namespace tensormem {

struct BlockingHooks {
  void* (*enter)() = nullptr;      // lets the caller's lock go, if this thread holds it; null otherwise
  void (*leave)(void*) = nullptr;  // takes it back
};

void install_blocking_hooks(const BlockingHooks& hooks);

class BlockingRegion {
 public:
  BlockingRegion();
  ~BlockingRegion();
  BlockingRegion(const BlockingRegion&) = delete;
  BlockingRegion& operator=(const BlockingRegion&) = delete;

 private:
  void* held_;
};

}  // namespace tensormem

// Owns: the lock for objects whose steps call a driver: whoever has to wait for it opens a BlockingRegion first. So the
// one who has it may let the caller's lock (Python's GIL) go inside a driver call, and take it back, while others wait.
// Must not know: what it guards. A lock that no driver call is made under can be a std::mutex.
#pragma once

#include <mutex>

#include "base/blocking.hpp"

namespace tensormem {

class Mutex {
 public:
  void lock() {
    if (mutex_.try_lock()) [[likely]]
      return;
    const BlockingRegion region;
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace tensormem

// Owns: how many views of one block are out, and whether the block is just going back, when no more may be made.
// With the GIL the steps of one call are one step already, and plain moves do; without it they are atomic.
// Must not know: what a view is.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>

#include "resource/resource.hpp"

namespace tensormem {

class ExportCount {
 public:
  // Counts one more view; false while the block is going.
  bool add() {
    return step([](std::int64_t count) { return count >= 0; }, [](std::int64_t count) { return count + 1; });
  }
  void remove() {
    step([](std::int64_t) { return true; }, [](std::int64_t count) { return count - 1; });
  }

  // The block is going: false when views are out, or when it is going already.
  bool close() {
    return step([](std::int64_t count) { return count == 0; }, [](std::int64_t) { return kClosed; });
  }
  // It went, or could not: whether it is live is asked elsewhere.
  void reopen() { count_.store(0, std::memory_order_release); }

  std::int64_t count() const { return count_.load(std::memory_order_acquire); }

 private:
  static constexpr std::int64_t kClosed = -1;

  template <typename May, typename Next>
  bool step(May may, Next next) {
    std::int64_t count = count_.load(std::memory_order_relaxed);
#ifdef Py_GIL_DISABLED
    do {
      if (!may(count)) return false;
    } while (!count_.compare_exchange_weak(count, next(count), std::memory_order_acq_rel));
#else
    if (!may(count)) return false;
    count_.store(next(count), std::memory_order_relaxed);
#endif
    return true;
  }

  std::atomic<std::int64_t> count_{0};
};

// Gives back a block whose count is closed. Whatever comes of it, from then on the block's state tells.
inline Status give_back(Resource& resource, const Block& block, StreamId stream, BlockState* end,
                        ExportCount& exports) {
  Status given = resource.deallocate(block, stream, end);
  exports.reopen();
  return given;
}

}  // namespace tensormem

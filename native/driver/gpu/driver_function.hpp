// Owns: a function of a vendor's driver, found at run time, and the one rule of calling it: any of them may wait for a
// device, so the caller's lock (Python's GIL) is let go around each call. A table of them cannot be called otherwise.
// Calls are counted where somebody asked for that before the driver was opened.
// Must not know: which function it is. The caller holds no lock of ours that is waited for with the GIL held.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/blocking.hpp"

namespace tensormem::gpu {

using CallCounter = std::atomic<std::int64_t>;

// One function of a table; `count` is -1 where the library does not have it.
struct CallCount {
  std::string name;
  std::int64_t count = 0;
};

template <typename Signature>
class DriverFunction;

template <typename Answer, typename... Arguments>
class DriverFunction<Answer(Arguments...)> {
 public:
  using Pointer = Answer (*)(Arguments...);

  void set(void* found) noexcept { function_ = reinterpret_cast<Pointer>(found); }
  void count(CallCounter* counter) noexcept { counter_ = counter; }
  bool operator==(std::nullptr_t) const noexcept { return function_ == nullptr; }
  std::int64_t calls() const noexcept {
    return function_ == nullptr || counter_ == nullptr ? -1 : counter_->load(std::memory_order_relaxed);
  }

  Answer operator()(Arguments... arguments) const {
    const BlockingRegion region;
    if (counter_ != nullptr) [[unlikely]]
      counter_->fetch_add(1, std::memory_order_relaxed);
    return function_(arguments...);
  }

 private:
  Pointer function_ = nullptr;
  CallCounter* counter_ = nullptr;
};

}  // namespace tensormem::gpu

// Owns: what went wrong behind a C function that can only answer "no": how often, and the newest reason.
// Must not know: who asks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "base/fork_guard.hpp"
#include "base/status.hpp"

namespace tensormem {

class Refusals {
 public:
  // `device` is the one that was asked; -1 where none was.
  void add(Status refusal, std::int32_t device = -1) noexcept {
    std::shared_ptr<const Status> newest;
    try {
      newest = std::make_shared<const Status>(std::move(refusal));
    } catch (const std::bad_alloc&) {
      // Counted all the same.
    }
    const std::lock_guard lock(mutex_);
    ++count_;
    last_device_ = device;
    last_.swap(newest);
    // The older one is dropped after the lock: its cause may be an object whose end needs another lock.
  }
  std::uint64_t count() const noexcept {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  // Null when nothing went wrong yet.
  std::shared_ptr<const Status> last() const noexcept {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  std::int32_t last_device() const noexcept {
    const std::lock_guard lock(mutex_);
    return last_device_;
  }

 private:
  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::uint64_t count_ = 0;
  std::int32_t last_device_ = -1;
  std::shared_ptr<const Status> last_;
};

}  // namespace tensormem

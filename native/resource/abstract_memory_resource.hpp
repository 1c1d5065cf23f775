// Owns: the leaf that hands out addresses without memory, each of them once: for asking what a stack would do. The
// addresses are ones that no process can have, so that touching them faults. Must not know: who asks.
#pragma once

#include <mutex>

#include "base/align.hpp"
#include "base/fork_guard.hpp"
#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

class AbstractMemoryResource final : public LeafMemoryResource {
 public:
  AbstractMemoryResource(Driver& driver, std::uint64_t capacity)
      : LeafMemoryResource(driver, 0, {SpaceKind::main, 0, false, false}), capacity_(capacity) {}
  ~AbstractMemoryResource() override { finish(); }

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t peak_bytes() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  // Beyond what any processor translates, and below what would overflow.
  static constexpr std::uint64_t kFirst = 1ULL << 58;
  static constexpr std::uint64_t kEnd = 1ULL << 63;

  Status take(const AllocRequest& request, std::uint64_t* address) override {
    const std::lock_guard lock(mutex_);
    const std::uint64_t start = align_up(next_, request.alignment);
    const bool has_room = request.nbytes <= capacity_ - used_ && request.nbytes <= kEnd - start;
    if (!has_room)
      return Status::fail(Code::out_of_memory, "the abstract memory is full", request.nbytes, capacity_ - used_,
                          capacity_ - used_);
    next_ = start + request.nbytes;
    used_ += request.nbytes;
    peak_ = used_ > peak_ ? used_ : peak_;
    *address = start;
    return {};
  }
  Status give_back(const BlockEntry& entry) override {
    const std::lock_guard lock(mutex_);
    used_ -= entry.nbytes;
    return {};
  }

  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  ForkGuard abstract_fork_guard_{mutex_};
  std::uint64_t next_ = kFirst;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace tensormem

// Owns: one piece of work as a plain value (a function and its argument, copied in place, no heap), and the ring in
// which a stream keeps the work that has not started. Not thread-safe: the stream's lock guards it.
// Must not know: threads, or what the work is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "base/invariant.hpp"

namespace tensormem::host {

struct Task {
  static constexpr std::size_t kArgumentBytes = 104;  // the largest is a copy: two places and a shape

  void (*run)(const void* argument) = nullptr;
  alignas(8) unsigned char argument[kArgumentBytes];
};

// The task that calls `function(argument)`.
template <auto function, typename Argument>
Task make_task(const Argument& argument) {
  static_assert(std::is_trivially_copyable_v<Argument> && sizeof(Argument) <= Task::kArgumentBytes);
  Task task;
  task.run = [](const void* bytes) { function(*static_cast<const Argument*>(bytes)); };
  std::memcpy(task.argument, &argument, sizeof argument);
  return task;
}

class TaskQueue {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }

  // False when there is no memory to grow; nothing has changed then.
  bool push(const Task& task) noexcept {
    if (count_ == capacity_ && !grow()) return false;
    ring_[(first_ + count_) & (capacity_ - 1)] = task;
    ++count_;
    return true;
  }

  Task pop() noexcept {
    TM_ASSERT(count_ > 0);
    const Task task = ring_[first_];
    first_ = (first_ + 1) & (capacity_ - 1);
    if (--count_ == 0 && capacity_ > kKeptTasks) forget_ring();
    return task;
  }

 private:
  bool grow() noexcept {
    const std::size_t wanted = capacity_ == 0 ? kFirstTasks : 2 * capacity_;
    std::unique_ptr<Task[]> ring(new (std::nothrow) Task[wanted]);
    if (ring == nullptr) return false;
    for (std::size_t i = 0; i < count_; ++i) ring[i] = ring_[(first_ + i) & (capacity_ - 1)];
    ring_ = std::move(ring);
    capacity_ = wanted;
    first_ = 0;
    return true;
  }
  // A burst must not keep its memory for ever.
  void forget_ring() noexcept {
    ring_.reset();
    capacity_ = 0;
    first_ = 0;
  }

  static constexpr std::size_t kFirstTasks = 16;
  static constexpr std::size_t kKeptTasks = 4096;

  std::unique_ptr<Task[]> ring_;
  std::size_t capacity_ = 0;  // zero or a power of two
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tensormem::host

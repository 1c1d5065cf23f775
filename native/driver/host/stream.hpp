// Owns: one stream: a queue, the worker thread that empties it first in, first out, and its timeline. Each piece of
// work gets the next number of `submitted`; `completed` follows. A point in the stream is such a number.
//
// A Stream object is never freed. It serves one stream after another (told apart by a serial), and its timeline only
// ever grows, so a point of a stream that is gone stays answerable: it is done. The thread starts with the first work.
// After a fork the objects of the parent are never touched in the child (their locks may be held by threads that do not
// exist there): the table forgets them.
// Must not know: ids, events, or what the work does.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/status.hpp"
#include "base/wait.hpp"
#include "driver/host/task_queue.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

class Stream {
 public:
  explicit Stream(std::uint32_t slot) noexcept : slot_(slot) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The stream whose worker is the calling thread; null on every other thread.
  static Stream* current() noexcept;

  // Begin to serve the stream called `serial` (never 0).
  void open(std::uint32_t serial) noexcept;
  // Refuse new work at once, wait for what there is, stop the worker. Of several callers one succeeds. When the wait
  // ends first, the stream is open again.
  Status close(std::uint32_t serial, const Wait& wait) noexcept;

  // `stream_misuse` unless the stream called `serial` is open.
  Status submit(std::uint32_t serial, const Task& task) noexcept;
  // Marks the present end of the stream as `*point`. If all before it is done, nothing is queued and `*passed` is true;
  // otherwise `marker` runs when the worker gets there.
  Status mark(std::uint32_t serial, const Task& marker, std::uint64_t* point, bool* passed) noexcept;
  // The number of the last work submitted.
  Status submitted(std::uint32_t serial, std::uint64_t* point) noexcept;

  bool has_passed(std::uint64_t point) const noexcept { return completed_.load() >= point; }
  // Never call these on `current()` with a point that it has not passed: that would wait for itself.
  Status wait(std::uint64_t point, const Wait& wait) noexcept;
  // Whether the point was passed within that time.
  bool sleep(std::uint64_t point, std::uint64_t nanoseconds) noexcept;
  // The same within a few microseconds, without sleeping.
  bool spin(std::uint64_t point) const noexcept;

  // For the child of a fork, which keeps the parent's objects in a list and never looks into them.
  Stream* next_abandoned = nullptr;

 private:
  static void* run_worker(void* stream) noexcept;
  void work() noexcept;
  bool run_taken() noexcept;
  void complete_one() noexcept;
  Status refuse(std::uint32_t serial) const noexcept;
  Status start_worker() noexcept;
  Status enqueue(const Task& task, bool* must_wake) noexcept;
  void spin_for_work() const noexcept;

  const std::uint32_t slot_;
  std::mutex mutex_;
  std::condition_variable work_added_;
  std::condition_variable work_done_;
  TaskQueue taken_;  // the worker's own: what it took from the queue and has not run
  std::atomic<std::uint64_t> completed_{0};
  // All below are guarded by the mutex; the atomics may also be read without it.
  TaskQueue queue_;
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint32_t> waiters_{0};
  std::uint32_t serial_ = 0;  // 0: closed, or closing
  pthread_t worker_ = {};
  bool has_worker_ = false;
  bool asleep_ = false;
  bool stopping_ = false;
};

// Called by the fork handlers: in the child, a worker that forked is nobody's worker any more.
void forget_current_stream() noexcept;

}  // namespace tensormem::host

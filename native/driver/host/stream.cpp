#include "driver/host/stream.hpp"

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

thread_local Stream* t_current = nullptr;

// How long to look before sleeping: a few microseconds, which is what falling asleep and being woken would take.
const int kSpins = os::processor_count() > 1 ? 100 : 0;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

StreamId id_of(std::uint32_t slot, std::uint32_t serial) { return (static_cast<StreamId>(serial) << 32) | slot; }

}  // namespace

Stream* Stream::current() noexcept { return t_current; }

void forget_current_stream() noexcept { t_current = nullptr; }

void Stream::open(std::uint32_t serial) noexcept {
  const std::lock_guard lock(mutex_);
  TM_ASSERT(serial_ == 0 && serial != 0 && queue_.empty() && !has_worker_);
  serial_ = serial;
}

Status Stream::refuse(std::uint32_t serial) const noexcept {
  return Status::fail(Code::stream_misuse, "the stream was destroyed", id_of(slot_, serial));
}

Status Stream::close(std::uint32_t serial, const Wait& patience) noexcept {
  std::unique_lock lock(mutex_);
  if (serial_ != serial) return refuse(serial);
  serial_ = 0;
  const std::uint64_t last = submitted_.load(std::memory_order_relaxed);
  if (!has_passed(last)) {
    lock.unlock();
    Status waited = wait(last, patience);
    lock.lock();
    if (!waited.ok()) {
      serial_ = serial;
      return waited;
    }
  }
  if (!has_worker_) return {};
  stopping_ = true;
  work_added_.notify_one();
  lock.unlock();
  os::join_thread(worker_);
  lock.lock();
  stopping_ = false;
  has_worker_ = false;
  return {};
}

Status Stream::start_worker() noexcept {
  if (const int error = os::start_thread(&worker_, &Stream::run_worker, this); error != 0) {
    return Status::driver_error(error, "pthread_create");
  }
  has_worker_ = true;
  return {};
}

Status Stream::enqueue(const Task& task, bool* must_wake) noexcept {
  if (!has_worker_) TM_TRY(start_worker());
  if (!queue_.push(task)) return Status::fail(Code::out_of_memory, "no memory for the stream's queue", sizeof(Task));
  submitted_.fetch_add(1, std::memory_order_release);
  *must_wake = asleep_;
  asleep_ = false;
  return {};
}

// The worker is woken after the lock is free: it would wake only to wait for it.
Status Stream::submit(std::uint32_t serial, const Task& task) noexcept {
  bool must_wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (serial_ != serial) return refuse(serial);
    TM_TRY(enqueue(task, &must_wake));
  }
  if (must_wake) work_added_.notify_one();
  return {};
}

Status Stream::mark(std::uint32_t serial, const Task& marker, std::uint64_t* point, bool* passed) noexcept {
  bool must_wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (serial_ != serial) return refuse(serial);
    const bool idle = has_passed(submitted_.load(std::memory_order_relaxed));
    if (!idle) TM_TRY(enqueue(marker, &must_wake));
    *passed = idle;
    *point = submitted_.load(std::memory_order_relaxed);
  }
  if (must_wake) work_added_.notify_one();
  return {};
}

Status Stream::submitted(std::uint32_t serial, std::uint64_t* point) noexcept {
  const std::lock_guard lock(mutex_);
  if (serial_ != serial) return refuse(serial);
  *point = submitted_.load(std::memory_order_relaxed);
  return {};
}

bool Stream::spin(std::uint64_t point) const noexcept {
  for (int i = 0; i <= kSpins; ++i) {
    if (has_passed(point)) return true;
    pause_processor();
  }
  return false;
}

Status Stream::wait(std::uint64_t point, const Wait& wait) noexcept {
  if (spin(point)) return {};
  return wait.until([&](std::uint64_t nanoseconds) { return sleep(point, nanoseconds); });
}

// Either the worker sees the waiter and tells it, or the waiter sees the work completed: both use the strongest order.
bool Stream::sleep(std::uint64_t point, std::uint64_t nanoseconds) noexcept {
  TM_ASSERT(current() != this);
  std::unique_lock lock(mutex_);
  waiters_.fetch_add(1);
  const bool passed =
      work_done_.wait_for(lock, std::chrono::nanoseconds(nanoseconds), [&] { return has_passed(point); });
  waiters_.fetch_sub(1);
  return passed;
}

void Stream::complete_one() noexcept {
  completed_.fetch_add(1);
  if (waiters_.load() == 0) return;
  const std::lock_guard lock(mutex_);
  work_done_.notify_all();
}

void* Stream::run_worker(void* stream) noexcept {
  t_current = static_cast<Stream*>(stream);
  char name[16];  // the kernel's limit, with its zero
  std::snprintf(name, sizeof name, "tm-stream-%u", t_current->slot_ % 10000);
  os::name_this_thread(name);
  t_current->work();
  return nullptr;
}

void Stream::spin_for_work() const noexcept {
  for (int i = 0; i < kSpins && has_passed(submitted_.load(std::memory_order_acquire)); ++i) pause_processor();
}

// False in the child of a fork that the work itself made: there the stream is the parent's, with its lock and queue.
bool Stream::run_taken() noexcept {
  while (!taken_.empty()) {
    const Task task = taken_.pop();
    task.run(task.argument);
    if (current() != this) return false;
    complete_one();
  }
  return true;
}

void Stream::work() noexcept {
  while (true) {
    spin_for_work();
    {
      std::unique_lock lock(mutex_);
      while (queue_.empty() && !stopping_) {
        asleep_ = true;
        work_added_.wait(lock);
      }
      if (queue_.empty()) return;
      std::swap(queue_, taken_);
    }
    if (!run_taken()) return;
  }
}

}  // namespace tensormem::host

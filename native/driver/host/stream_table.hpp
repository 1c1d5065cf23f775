// Owns: which stream ids are alive. An id is a slot and a serial (types.hpp); every slot keeps one Stream object that
// it lends to one stream after another. Checking an id takes no lock.
// Must not know: events, or what work does.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/status.hpp"
#include "driver/host/stream.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

inline constexpr std::uint32_t kMaxStreams = 1024;

class StreamTable {
 public:
  // How many streams there may be at once: 1 to kMaxStreams, which it is at first.
  Status set_limit(std::uint32_t limit) noexcept;
  // `out_of_budget` beyond the limit.
  Status create(StreamId* id) noexcept;
  // Waits for the stream's work. Refuses the default stream, and the stream whose worker is calling.
  Status destroy(StreamId id, const Wait& wait) noexcept;
  // Destroys every stream. Refused when called by a worker.
  Status destroy_all() noexcept;

  // Run `task` on the stream: in place for the default stream.
  Status submit(StreamId id, const Task& task) noexcept;
  // See Stream::mark. On the default stream everything is passed, and `*stream` is null.
  Status mark(StreamId id, const Task& marker, Stream** stream, std::uint64_t* point, bool* passed) noexcept;
  Status synchronize(StreamId id, const Wait& wait) noexcept;
  Status query(StreamId id, bool* done) noexcept;
  // Make later work of `id` wait for a point of another stream (or the same: nothing to do).
  Status wait(StreamId id, Stream* other, std::uint64_t point) noexcept;

  bool is_valid_id(StreamId id) const noexcept {
    const std::uint32_t slot = slot_of(id);
    return id == kDefaultStream ||
           (slot - 1 < kMaxStreams && slots_[slot].live_serial.load(std::memory_order_acquire) == serial_of(id) &&
            serial_of(id) != 0);
  }
  Status check(StreamId id) const noexcept;
  std::uint32_t live_count() const noexcept { return live_.load(std::memory_order_relaxed); }
  bool is_valid() const noexcept;

  // Around a fork. The child forgets every stream: its threads exist only in the parent.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  void after_fork_in_child() noexcept;

 private:
  struct Slot {
    std::atomic<std::uint32_t> live_serial{0};  // 0: no stream lives here
    std::atomic<Stream*> stream{nullptr};
    std::uint32_t next_serial = 1;  // guarded by the mutex, like `busy`
    bool busy = false;              // lent to a stream, up to the end of its destruction
  };

  static std::uint32_t slot_of(StreamId id) noexcept { return static_cast<std::uint32_t>(id); }
  static std::uint32_t serial_of(StreamId id) noexcept { return static_cast<std::uint32_t>(id >> 32); }
  Status find(StreamId id, Stream** stream) const noexcept;
  Status find_free_slot(std::uint32_t* slot) noexcept;

  mutable std::mutex mutex_;
  std::atomic<std::uint32_t> live_{0};
  std::uint32_t next_slot_ = 1;        // where to look first
  std::uint32_t limit_ = kMaxStreams;  // guarded by the mutex
  std::array<Slot, kMaxStreams + 1> slots_;
  Stream* abandoned_ = nullptr;
};

}  // namespace tensormem::host

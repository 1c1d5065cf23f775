// Owns: events: named points in streams, with the time at which the worker passed them. A handle is a slot and a
// serial, never a pointer, so that a null, stale or made-up handle is refused and not followed. Slots are pooled and
// never freed; a query takes one uncontended spinlock. Must not know: how streams run work.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/spinlock.hpp"
#include "base/status.hpp"
#include "driver/host/stream.hpp"
#include "driver/host/stream_table.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

inline constexpr std::uint32_t kMaxEvents = 1U << 20;

class EventTable {
 public:
  explicit EventTable(StreamTable& streams) noexcept : streams_(streams) {}

  // `out_of_budget` beyond kMaxEvents.
  Status create(EventHandle* event) noexcept;
  Status destroy(EventHandle event) noexcept;
  Status record(EventHandle event, StreamId stream) noexcept;
  Status query(EventHandle event, bool* done) noexcept;
  // `stream_misuse` when the event is destroyed meanwhile.
  Status wait(EventHandle event, const Wait& wait) noexcept;
  // Both must have been recorded and be done.
  Status elapsed(EventHandle start, EventHandle end, double* seconds) noexcept;
  Status make_stream_wait(StreamId stream, EventHandle event) noexcept;

  std::uint32_t live_count() const noexcept { return live_.load(std::memory_order_relaxed); }
  bool is_valid() const noexcept;

  // Around a fork. In the child, events recorded on a worker's stream can never be reached again: `stream_misuse`.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  void after_fork_in_child() noexcept;

 private:
  static constexpr std::uint32_t kChunkEvents = 256;
  static constexpr std::uint32_t kChunks = kMaxEvents / kChunkEvents;
  static constexpr std::uint32_t kNoSlot = ~0U;

  // A point in time: where in which stream. No stream: passed when it was recorded.
  struct Point {
    Stream* stream = nullptr;
    std::uint64_t number = 0;
    bool from_parent = false;  // recorded on a worker's stream before a fork
    bool has_passed() const noexcept { return stream == nullptr || stream->has_passed(number); }
  };
  struct Event {
    Spinlock lock;
    std::uint32_t serial = 0;  // 0: free
    std::uint32_t next_serial = 1;
    std::uint32_t next_free = kNoSlot;  // guarded by the table's mutex
    // Recordings are numbered, because a marker of an old one may still be under way when the next is made.
    std::uint64_t last_recording = 0;  // numbers given out
    std::uint64_t recording = 0;       // the one that counts; 0: never recorded
    std::uint64_t stamped_recording = 0;
    std::uint64_t stamp = 0;  // nanoseconds; of `stamped_recording`
    Point point;
  };
  struct Marker {
    EventTable* table;
    std::uint32_t slot;
    std::uint32_t serial;
    std::uint64_t recording;
  };

  static void run_marker(const Marker& marker);
  Event* at(std::uint32_t slot) const noexcept;
  // The event, locked; the caller unlocks it.
  Status find_locked(EventHandle handle, Event** event) const noexcept;
  Status read_point(EventHandle handle, Point* point) const noexcept;
  Status read_stamp(EventHandle handle, std::uint64_t* stamp) const noexcept;
  Status add_chunk() noexcept;

  StreamTable& streams_;
  mutable std::mutex mutex_;
  std::uint32_t first_free_ = kNoSlot;
  std::uint32_t chunk_count_ = 0;
  std::atomic<std::uint32_t> live_{0};
  std::array<std::atomic<Event*>, kChunks> chunks_{};
};

}  // namespace tensormem::host

// Owns: the events of one thread that nobody has written down yet: a ring with one producer, its thread, and one
// consumer, whoever drains. No lock, and no store that the other side also writes. Must not know: what is done with
// events.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "trace/event.hpp"

namespace tensormem {

class TraceRing {
 public:
  static constexpr std::uint64_t kEvents = 16384;  // 1 MiB

  explicit TraceRing(std::uint32_t thread, std::uint64_t events = kEvents)
      : slots_(new Slot[events]), mask_(events - 1), thread_(thread) {}

  // --- The producer's side ---------------------------------------------------------------------------------------
  // False when the ring is full; nothing has changed then.
  bool push(const TraceEvent& event) noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - seen_tail_ > mask_) [[unlikely]] {
      seen_tail_ = tail_.load(std::memory_order_acquire);
      if (head - seen_tail_ > mask_) return false;
    }
    slots_[head & mask_].event = event;
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  // Once for each half: time to wake whoever drains.
  bool has_filled_half() const noexcept { return (head_.load(std::memory_order_relaxed) & (mask_ >> 1)) == 0; }
  // Nobody waits for room while the drain is stuck: it has had its chance.
  bool is_patient = true;
  void count_dropped() noexcept {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void close() noexcept { closed_.store(true, std::memory_order_release); }

  // --- The consumer's side ---------------------------------------------------------------------------------------
  std::uint64_t head() const noexcept { return head_.load(std::memory_order_acquire); }
  std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  // Copies at most `most` events from before `head` to `out` and makes room for as many.
  std::uint64_t take(std::uint64_t head, TraceEvent* out, std::uint64_t most) noexcept {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t count = std::min(head - tail, most);
    const std::uint64_t first = std::min(count, mask_ + 1 - (tail & mask_));
    const auto event_of = [](const Slot& slot) { return slot.event; };
    std::transform(&slots_[tail & mask_], &slots_[tail & mask_] + first, out, event_of);
    std::transform(&slots_[0], &slots_[0] + (count - first), out + first, event_of);
    tail_.store(tail + count, std::memory_order_release);
    return count;
  }
  void discard() noexcept { tail_.store(head(), std::memory_order_release); }
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  bool is_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  std::uint32_t thread() const noexcept { return thread_; }
  void set_thread(std::uint32_t thread) noexcept { thread_ = thread; }
  bool is_valid() const noexcept { return head() - tail() <= mask_ + 1; }

 private:
  struct alignas(64) Slot {  // one line of the cache, never two
    TraceEvent event;
  };

  const std::unique_ptr<Slot[]> slots_;
  const std::uint64_t mask_;
  std::uint32_t thread_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::uint64_t seen_tail_ = 0;
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> closed_{false};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace tensormem

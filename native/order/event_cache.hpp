// Owns: the events of one resource, recycled instead of created anew, and counted references to them: a block's use and
// somebody who waits for it may hold the same event, and it is recorded again only when nobody holds it.
// Must not know: blocks. Thread-safe. Every EventRef must be gone before its cache.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_guard.hpp"
#include "driver/driver.hpp"

namespace tensormem {

class EventCache;

struct CachedEvent {
  EventHandle handle = nullptr;
  EventCache* home = nullptr;
  std::atomic<std::uint32_t> references{0};
};

class EventRef {
 public:
  EventRef() = default;
  explicit EventRef(CachedEvent* event) : event_(event) { retain(); }
  EventRef(const EventRef& other) : event_(other.event_) { retain(); }
  EventRef(EventRef&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  EventRef& operator=(EventRef other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~EventRef();

  explicit operator bool() const { return event_ != nullptr; }
  EventHandle handle() const { return event_->handle; }

 private:
  void retain() {
    if (event_ != nullptr) event_->references.fetch_add(1, std::memory_order_relaxed);
  }

  CachedEvent* event_ = nullptr;
};

// Refuses a stream that is being captured into a graph: an event there marks a place in the graph, and asking whether
// it has passed would end the capture.
Status check_not_capturing(Driver& driver, StreamId stream);

class EventCache {
 public:
  EventCache(Driver& driver, std::int32_t device) : driver_(driver), device_(device) {}
  ~EventCache();
  EventCache(const EventCache&) = delete;
  EventCache& operator=(const EventCache&) = delete;

  // An event recorded on `stream`, now.
  Status record(StreamId stream, EventRef* out);
  std::size_t idle_count() const;
  bool is_valid() const;

 private:
  friend class EventRef;
  Status take(CachedEvent** out);
  void put_back(CachedEvent* event);

  Driver& driver_;
  const std::int32_t device_;
  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::vector<CachedEvent*> idle_;
};

}  // namespace tensormem

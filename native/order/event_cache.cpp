#include "order/event_cache.hpp"

#include <algorithm>
#include <new>

#include "base/invariant.hpp"

namespace tensormem {

EventRef::~EventRef() {
  if (event_ == nullptr) return;
  if (event_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) event_->home->put_back(event_);
}

EventCache::~EventCache() {
  TM_WALK(is_valid());
  for (CachedEvent* event : idle_) {
    // A handle whose destruction fails is the driver's loss; there is nobody left to tell.
    (void)driver_.event_destroy(event->handle).ok();
    delete event;
  }
}

Status check_not_capturing(Driver& driver, StreamId stream) {
  bool capturing = false;
  TM_TRY(driver.stream_is_capturing(stream, &capturing));
  if (!capturing) return {};
  return Status::fail(Code::stream_misuse,
                      "the stream is being captured into a graph: free and tell of uses before or after it", stream);
}

Status EventCache::record(StreamId stream, EventRef* out) {
  CachedEvent* event = nullptr;
  TM_TRY(check_not_capturing(driver_, stream));
  TM_TRY(take(&event));
  EventRef reference(event);
  TM_TRY(driver_.event_record(event->handle, stream));
  *out = std::move(reference);
  return {};
}

std::size_t EventCache::idle_count() const {
  const std::lock_guard lock(mutex_);
  return idle_.size();
}

// What is idle is nobody's, and is here once.
bool EventCache::is_valid() const {
  const std::lock_guard lock(mutex_);
  for (const CachedEvent* event : idle_) {
    if (event->home != this || event->handle == nullptr || event->references.load() != 0) return false;
  }
  std::vector<CachedEvent*> sorted = idle_;
  std::ranges::sort(sorted);
  return std::ranges::adjacent_find(sorted) == sorted.end();
}

Status EventCache::take(CachedEvent** out) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      *out = idle_.back();
      idle_.pop_back();
      return {};
    }
  }
  auto* event = new (std::nothrow) CachedEvent;
  if (event == nullptr) return Status::fail(Code::out_of_memory, "no memory for an event", sizeof(CachedEvent));
  event->home = this;
  if (Status created = driver_.event_create(device_, &event->handle); !created.ok()) {
    delete event;
    return created;
  }
  *out = event;
  return {};
}

void EventCache::put_back(CachedEvent* event) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(event);
}

}  // namespace tensormem

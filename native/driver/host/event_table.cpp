#include "driver/host/event_table.hpp"

#include <new>

#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

EventHandle handle_of(std::uint32_t slot, std::uint32_t serial) {
  return reinterpret_cast<EventHandle>((static_cast<std::uintptr_t>(serial) << 32) | (slot + 1));
}

}  // namespace

EventTable::Event* EventTable::at(std::uint32_t slot) const noexcept {
  Event* const chunk = chunks_[slot / kChunkEvents].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : chunk + slot % kChunkEvents;
}

Status EventTable::find_locked(EventHandle handle, Event** event) const noexcept {
  if (handle == nullptr) return Status::fail(Code::invalid_argument, "the event is null");
  const auto bits = reinterpret_cast<std::uintptr_t>(handle);
  const std::uint32_t slot = static_cast<std::uint32_t>(bits) - 1;
  const auto serial = static_cast<std::uint32_t>(bits >> 32);
  Event* const found = slot < kMaxEvents ? at(slot) : nullptr;
  if (found != nullptr) {
    found->lock.lock();
    if (found->serial == serial && serial != 0) {
      *event = found;
      return {};
    }
    found->lock.unlock();
  }
  return Status::fail(Code::invalid_argument, "no such event (destroyed, or not made by this driver)");
}

Status EventTable::add_chunk() noexcept {
  if (chunk_count_ == kChunks) {
    return Status::fail(Code::out_of_budget, "the limit on the number of events", 1, kMaxEvents, 0, kMaxEvents);
  }
  Event* const chunk = new (std::nothrow) Event[kChunkEvents];
  if (chunk == nullptr) {
    return Status::fail(Code::out_of_memory, "no memory for events", sizeof(Event) * kChunkEvents);
  }
  const std::uint32_t first = chunk_count_ * kChunkEvents;
  for (std::uint32_t i = 0; i + 1 < kChunkEvents; ++i) chunk[i].next_free = first + i + 1;
  chunk[kChunkEvents - 1].next_free = first_free_;
  first_free_ = first;
  chunks_[chunk_count_++].store(chunk, std::memory_order_release);
  return {};
}

Status EventTable::create(EventHandle* event) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_free_ == kNoSlot) TM_TRY(add_chunk());
  const std::uint32_t slot = first_free_;
  Event& fresh = *at(slot);
  first_free_ = fresh.next_free;
  const std::lock_guard event_lock(fresh.lock);
  TM_ASSERT(fresh.serial == 0);
  fresh.serial = fresh.next_serial;
  fresh.next_serial = fresh.next_serial + 1 == 0 ? 1 : fresh.next_serial + 1;
  fresh.recording = 0;
  fresh.point = Point{};
  live_.fetch_add(1, std::memory_order_relaxed);
  *event = handle_of(slot, fresh.serial);
  return {};
}

Status EventTable::destroy(EventHandle event) noexcept {
  const std::lock_guard lock(mutex_);
  Event* found = nullptr;
  TM_TRY(find_locked(event, &found));
  found->serial = 0;
  found->lock.unlock();
  found->next_free = first_free_;
  first_free_ = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(event)) - 1;
  live_.fetch_sub(1, std::memory_order_relaxed);
  return {};
}

// Runs on the stream's worker when it gets to the point.
void EventTable::run_marker(const Marker& marker) {
  const std::uint64_t now = os::monotonic_nanoseconds();
  Event& event = *marker.table->at(marker.slot);
  const std::lock_guard lock(event.lock);
  if (event.serial != marker.serial || event.stamped_recording >= marker.recording) return;
  event.stamped_recording = marker.recording;
  event.stamp = now;
}

// The stream is asked without the event's lock; a failure there leaves nothing behind but a number not used.
Status EventTable::record(EventHandle event, StreamId stream) noexcept {
  Event* found = nullptr;
  TM_TRY(find_locked(event, &found));
  const std::uint64_t recording = ++found->last_recording;
  const Marker marker{this, static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(event)) - 1, found->serial,
                      recording};
  found->lock.unlock();

  Point point;
  bool passed = false;
  TM_TRY(streams_.mark(stream, make_task<run_marker>(marker), &point.stream, &point.number, &passed));
  const std::uint64_t now = passed ? os::monotonic_nanoseconds() : 0;

  TM_TRY(find_locked(event, &found));
  if (recording > found->recording) {
    found->recording = recording;
    found->point = point;
  }
  if (passed && recording > found->stamped_recording) {
    found->stamped_recording = recording;
    found->stamp = now;
  }
  found->lock.unlock();
  return {};
}

Status EventTable::read_point(EventHandle handle, Point* point) const noexcept {
  Event* event = nullptr;
  TM_TRY(find_locked(handle, &event));
  *point = event->point;
  event->lock.unlock();
  if (!point->from_parent) return {};
  return Status::fail(Code::stream_misuse, "the event was recorded before a fork, on a stream of the parent", 0);
}

Status EventTable::query(EventHandle event, bool* done) noexcept {
  Point point;
  TM_TRY(read_point(event, &point));
  *done = point.has_passed();
  return {};
}

Status EventTable::wait(EventHandle event, const Wait& wait) noexcept {
  Point point;
  TM_TRY(read_point(event, &point));
  if (point.stream == nullptr || point.stream->spin(point.number)) return {};
  if (point.stream == Stream::current())
    return Status::fail(Code::stream_misuse, "work on a stream cannot wait for that stream", kDefaultStream);
  bool gone = false;
  TM_TRY(wait.until([&](std::uint64_t nanoseconds) {
    if (point.stream->sleep(point.number, nanoseconds)) return true;
    Point now;
    gone = !read_point(event, &now).ok();
    return gone;
  }));
  return gone ? Status::fail(Code::stream_misuse, "the event was closed while it was waited for", 0) : Status();
}

Status EventTable::make_stream_wait(StreamId stream, EventHandle event) noexcept {
  Point point;
  TM_TRY(read_point(event, &point));
  return streams_.wait(stream, point.stream, point.number);
}

Status EventTable::read_stamp(EventHandle handle, std::uint64_t* stamp) const noexcept {
  Point point;
  TM_TRY(read_point(handle, &point));
  if (!point.has_passed()) return Status::fail(Code::invalid_argument, "the event is not done yet");
  Event* event = nullptr;
  TM_TRY(find_locked(handle, &event));
  const bool stamped = event->recording != 0 && event->stamped_recording == event->recording;
  const bool recorded = event->recording != 0;
  *stamp = event->stamp;
  event->lock.unlock();
  if (stamped) return {};
  return Status::fail(Code::invalid_argument, recorded ? "the event is not done yet" : "the event was never recorded");
}

Status EventTable::elapsed(EventHandle start, EventHandle end, double* seconds) noexcept {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  TM_TRY(read_stamp(start, &from));
  TM_TRY(read_stamp(end, &to));
  *seconds = static_cast<double>(static_cast<std::int64_t>(to - from)) * 1e-9;
  return {};
}

// A lock may have been held by a thread of the parent that does not exist here, over a half-written point.
void EventTable::after_fork_in_child() noexcept {
  for (std::uint32_t slot = 0; slot < chunk_count_ * kChunkEvents; ++slot) {
    Event& event = *at(slot);
    const bool torn = !event.lock.try_lock();
    if (torn || event.point.stream != nullptr) event.point = Point{nullptr, 0, event.recording != 0 || torn};
    event.lock.unlock();
  }
  mutex_.unlock();
}

bool EventTable::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint32_t live = 0;
  std::uint32_t free = 0;
  for (std::uint32_t slot = 0; slot < chunk_count_ * kChunkEvents; ++slot) {
    Event& event = *at(slot);
    const std::lock_guard event_lock(event.lock);
    if (event.recording > event.last_recording || event.stamped_recording > event.last_recording) return false;
    live += event.serial != 0 ? 1 : 0;
  }
  for (std::uint32_t slot = first_free_; slot != kNoSlot && free <= kMaxEvents; slot = at(slot)->next_free) ++free;
  return live == live_.load() && live + free == chunk_count_ * kChunkEvents;
}

}  // namespace tensormem::host

#include "core/streams.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "core/call_book.hpp"
#include "core/captures.hpp"
#include "core/machine.hpp"
#include "driver/host/task_queue.hpp"

namespace simgpu {

namespace {

namespace host = tensormem::host;

struct Nothing {};
void do_nothing(const Nothing&) {}

struct Latency {
  std::uint64_t nanoseconds;
};
void take_time(const Latency& latency) { std::this_thread::sleep_for(std::chrono::nanoseconds(latency.nanoseconds)); }

// One pair of tables for the process: workers outlive the machines that used them.
host::StreamTable& stream_table() {
  static host::StreamTable* const table = new host::StreamTable;
  return *table;
}

host::EventTable& event_table() {
  static host::EventTable* const table = new host::EventTable(stream_table());
  return *table;
}

thread_local HostPoint t_room;

// What it takes to write the time down, on the stream.
constexpr std::uint64_t kTimingNanoseconds = 5000;
constexpr unsigned kDisableTiming = 2;
constexpr unsigned kInterprocess = 4;

// A number of an event that other processes see, told or waited for by the work of a stream.
struct SharedPoint {
  SharedEvent::Page* page;
  std::uint64_t number;
};

void pass_shared(const SharedPoint& point) { point.page->pass(point.number); }
void await_shared(const SharedPoint& point) { point.page->wait_for(point.number); }

std::atomic<std::uint64_t> g_serials{0};
std::atomic<std::uint64_t> g_threads{0};

}  // namespace

std::uint64_t thread_number() {
  thread_local const std::uint64_t number = ++g_threads;
  return number;
}

Result Streams::create(Device& device, unsigned flags, int priority, bool is_own, Stream** stream) {
  bury_idle();
  tensormem::StreamId id = 0;
  if (!stream_table().create(&id).ok()) return kOutOfMemory;
  auto fresh = std::make_unique<Stream>();
  fresh->serial = ++g_serials;
  fresh->id = id;
  fresh->device = &device;
  fresh->flags = flags;
  fresh->priority = priority;
  fresh->is_own = is_own;
  *stream = fresh.get();
  streams_.emplace(fresh.get(), std::move(fresh));
  return kSuccess;
}

void Streams::destroy(Stream& stream) {
  stream.alive = false;
  if (stream.capture != nullptr) {
    stream.capture->invalid = true;
    stream.capture->streams.erase(&stream);
    if (stream.capture->origin == &stream) stream.capture->origin = nullptr;
    stream.capture = nullptr;
  }
  dying_.push_back(&stream);
  bury_idle();
}

// A worker can be ended only when it is idle, and nobody may wait for that here.
void Streams::bury_idle() {
  std::vector<Stream*> busy;
  for (Stream* stream : dying_) {
    bool idle = false;
    if (stream_table().query(stream->id, &idle).ok() && !idle) {
      busy.push_back(stream);
    } else {
      (void)stream_table().destroy(stream->id, tensormem::Wait::until_done()).ok();
    }
  }
  dying_ = std::move(busy);
}

Result Streams::find(void* handle, Stream** stream) {
  const auto found = streams_.find(handle);
  if (found == streams_.end() || !found->second->alive) return kInvalidHandle;
  *stream = found->second.get();
  return kSuccess;
}

Stream& Streams::legacy(Device& device) {
  Stream*& known = legacy_[&device];
  if (known == nullptr && create(device, 0, 0, false, &known) == kSuccess) known->is_legacy = true;
  return *known;
}

Stream& Streams::of_this_thread(Device& device) {
  Stream*& known = per_thread_[thread_number() << 8 | static_cast<unsigned>(device.ordinal)];
  if (known == nullptr) (void)create(device, 0, 0, false, &known);
  return *known;
}

HostPoint Streams::end_of(Stream& stream) {
  HostPoint point;
  bool passed = false;
  const host::Task marker = host::make_task<do_nothing>(Nothing{});
  if (!stream_table().mark(stream.id, marker, &point.worker, &point.number, &passed).ok() || passed) return {};
  return point;
}

std::vector<HostPoint> Streams::ends_of(Device& device) {
  std::vector<HostPoint> ends;
  for (auto& [handle, stream] : streams_) {
    if (stream->device != &device) continue;
    const HostPoint end = end_of(*stream);
    if (!end.has_passed()) ends.push_back(end);
  }
  return ends;
}

std::vector<Stream*> Streams::of(Device& device) {
  std::vector<Stream*> found;
  for (auto& [handle, stream] : streams_) {
    if (stream->device == &device) found.push_back(stream.get());
  }
  return found;
}

Result Streams::order_behind(Stream& stream, Stream& other) {
  stream.clock.merge(other.clock);
  stream.clock.raise(other.now());
  const HostPoint end = end_of(other);
  if (end.has_passed()) return kSuccess;
  return stream_table().wait(stream.id, end.worker, end.number).ok() ? kSuccess : kUnknown;
}

// The legacy stream would have to wait for work that does not run.
Result Streams::check_implicit(const Stream& legacy, Stream& other) {
  if (other.capture == nullptr || other.device != legacy.device || !other.is_blocking()) return kSuccess;
  if (!config_.habits.capture_rules) return kSuccess;
  other.capture->invalid = true;
  return kCaptureImplicit;
}

Result Streams::order_with_legacy(Stream& stream) {
  if (!stream.is_blocking()) return kSuccess;
  if (!stream.is_legacy) {
    const auto legacy = legacy_.find(stream.device);
    return legacy == legacy_.end() ? kSuccess : order_behind(stream, *legacy->second);
  }
  for (auto& [handle, other] : streams_) {
    if (other.get() == &stream || other->device != stream.device || !other->is_blocking() || !other->alive) continue;
    SIM_TRY(check_implicit(stream, *other));
    SIM_TRY(order_behind(stream, *other));
  }
  return kSuccess;
}

Result Streams::submit(Stream& stream, const host::Task& task) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalid) return kCaptureInvalidated;
    stream.capture->graph->work.push_back(task);
    stream.clock.raise({stream.serial, ++stream.submitted});
    return kSuccess;
  }
  SIM_TRY(order_with_legacy(stream));
  bound_queue(stream);
  stream.clock.merge(host_);
  if (const std::uint64_t nanoseconds = CallBook::work_nanoseconds(); nanoseconds != 0) {
    if (!stream_table().submit(stream.id, host::make_task<take_time>(Latency{nanoseconds})).ok()) return kUnknown;
  }
  if (!stream_table().submit(stream.id, task).ok()) return kUnknown;
  stream.clock.raise({stream.serial, ++stream.submitted});
  return kSuccess;
}

// A mark every sixteenth of the queue: when there are too many that have not been passed, it is full. Set before the
// work, so that a stream is idle when its work is done.
void Streams::bound_queue(Stream& stream) {
  const std::uint64_t step = std::max<std::uint64_t>(config_.queue / 16, 1);
  if (!config_.habits.bounded_queue || ++stream.unmarked < step) return;
  stream.unmarked = 0;
  while (!stream.marks.empty() && stream.marks.front().has_passed()) stream.marks.pop_front();
  const HostPoint end = end_of(stream);
  if (end.has_passed()) return;
  stream.marks.push_back(end);
  if (stream.marks.size() <= config_.queue / step) return;
  t_room = stream.marks.front();
}

void Streams::wait_for_room() { std::exchange(t_room, {}).wait(); }

// --- Events ------------------------------------------------------------------------------------------------------

Result Streams::create_event(Device& device, unsigned flags, Event** event) {
  auto fresh = std::make_unique<Event>();
  if (!event_table().create(&fresh->handle).ok()) return kOutOfMemory;
  fresh->device = &device;
  fresh->flags = flags;
  if ((flags & kInterprocess) != 0) SIM_TRY(SharedEvent::create(&fresh->shared));
  *event = fresh.get();
  events_.emplace(fresh.get(), std::move(fresh));
  return kSuccess;
}

Result Streams::destroy_event(Event& event) {
  event.alive = false;
  event.clock = Clock{};
  return event_table().destroy(event.handle).ok() ? kSuccess : kInvalidHandle;
}

Result Streams::find_event(void* handle, Event** event) {
  const auto found = events_.find(handle);
  if (found == events_.end() || !found->second->alive) return kInvalidHandle;
  *event = found->second.get();
  return kSuccess;
}

Result Streams::record(Event& event, Stream& stream) {
  if (event.device != stream.device) return kInvalidHandle;  // an event belongs to one context
  event.capture = stream.capture == nullptr ? 0 : stream.capture->id;
  if (stream.capture != nullptr) {
    if (stream.capture->invalid) return kCaptureInvalidated;
    event.recorded = true;
    event.clock = stream.clock;
    event.clock.raise(stream.now());
    return kSuccess;
  }
  SIM_TRY(order_with_legacy(stream));
  bound_queue(stream);
  stream.clock.merge(host_);
  if ((event.flags & kDisableTiming) == 0) {
    timing_records_ += 1;
    const host::Task task = host::make_task<take_time>(Latency{kTimingNanoseconds});
    if (config_.habits.timing_cost && !stream_table().submit(stream.id, task).ok()) return kUnknown;
  }
  SIM_TRY(record_shared(event, stream));
  if (!event_table().record(event.handle, stream.id).ok()) return kUnknown;
  event.recorded = true;
  event.clock = stream.clock;
  event.clock.raise(stream.now());
  return kSuccess;
}

// Work in a capture must not wait for work outside of it.
Result Streams::wait_in_capture(Stream& stream, const Event& event) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return kCaptureInvalidated;
  if (event.capture == capture.id) {
    stream.clock.merge(event.clock);
    return kSuccess;
  }
  capture.invalid = true;
  return event.capture == 0 ? kCaptureIsolation : kCaptureMerge;
}

// A stream that waits for an event of a capture becomes part of it.
Result Streams::wait_for_captured(Stream& stream, const Event& event) {
  for (auto& [handle, other] : streams_) {
    Capture* const capture = other->capture;
    if (capture == nullptr || capture->id != event.capture) continue;
    if (capture->invalid) return kCaptureInvalidated;
    if (stream.is_legacy) {
      capture->invalid = true;
      return kCaptureImplicit;
    }
    stream.capture = capture;
    capture->streams.emplace(&stream, stream.submitted);
    stream.clock.merge(event.clock);
    return kSuccess;
  }
  return kCapturedEvent;
}

Result Streams::wait(Stream& stream, const Event& event) {
  if (!event.recorded) return kSuccess;
  if (stream.capture != nullptr) return wait_in_capture(stream, event);
  if (event.capture != 0) return wait_for_captured(stream, event);
  stream.clock.merge(event.clock);
  if (event.shared != nullptr) {
    SharedEvent::Page& page = event.shared->page();
    if (page.has_passed()) return kSuccess;
    const host::Task task = host::make_task<await_shared>(SharedPoint{&page, page.recorded.load()});
    return stream_table().submit(stream.id, task).ok() ? kSuccess : kUnknown;
  }
  return event_table().make_stream_wait(stream.id, event.handle).ok() ? kSuccess : kUnknown;
}

Result Streams::record_shared(Event& event, Stream& stream) {
  if (event.shared == nullptr) return kSuccess;
  SharedEvent::Page& page = event.shared->page();
  const host::Task task = host::make_task<pass_shared>(SharedPoint{&page, page.recorded.fetch_add(1) + 1});
  return stream_table().submit(stream.id, task).ok() ? kSuccess : kUnknown;
}

bool Streams::has_passed(const Event& event) const {
  if (event.shared != nullptr) return event.shared->page().has_passed();
  bool passed = false;
  return !event_table().query(event.handle, &passed).ok() || passed;
}

void Streams::wait_for(const Event& event) {
  if (event.shared != nullptr) {
    event.shared->page().wait_for(event.shared->page().recorded.load());
  } else {
    (void)event_table().wait(event.handle, tensormem::Wait::until_done()).ok();
  }
}

Result Streams::elapsed(const Event& start, const Event& end, float* milliseconds) {
  if (((start.flags | end.flags) & kDisableTiming) != 0 || !start.recorded || !end.recorded) return kInvalidHandle;
  if (start.device != end.device) return kInvalidHandle;
  bool passed = false;
  for (const Event* event : {&start, &end}) {
    if (!event_table().query(event->handle, &passed).ok() || !passed) return kNotReady;
  }
  double seconds = 0;
  if (!event_table().elapsed(start.handle, end.handle, &seconds).ok()) return kNotReady;
  *milliseconds = static_cast<float>(seconds * 1e3);
  return kSuccess;
}

// --- Ends --------------------------------------------------------------------------------------------------------

std::uint64_t Streams::own_count() const {
  std::uint64_t count = 0;
  for (const auto& [handle, stream] : streams_) count += stream->is_own && stream->alive ? 1 : 0;
  return count;
}

std::uint64_t Streams::event_count() const {
  std::uint64_t count = 0;
  for (const auto& [handle, event] : events_) count += event->alive ? 1 : 0;
  return count;
}

void Streams::destroy_all(Device& device) {
  for (auto& [handle, stream] : streams_) {
    if (stream->device == &device && stream->alive && stream->is_own) destroy(*stream);
  }
  for (auto& [handle, event] : events_) {
    if (event->device == &device && event->alive) (void)destroy_event(*event);
  }
}

void Streams::destroy_all(const void* own_context) {
  for (auto& [handle, stream] : streams_) {
    if (stream->own_context == own_context && stream->alive && stream->is_own) destroy(*stream);
  }
}

void Streams::close() {
  for (auto& [handle, stream] : streams_) {
    stream->alive = false;
    (void)stream_table().destroy(stream->id, tensormem::Wait::until_done()).ok();
  }
  for (auto& [handle, event] : events_) {
    if (event->alive) (void)destroy_event(*event);
  }
  dying_.clear();
  legacy_.clear();
  per_thread_.clear();
}

}  // namespace simgpu

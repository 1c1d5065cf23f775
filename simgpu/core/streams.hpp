// Owns: streams and events of the simulated machine: the host driver's worker threads and markers, the legacy stream's
// rule (it and blocking streams wait for one another), and what each point is known to come after.
// Must not know: memory. Guarded by the machine's lock; only `HostPoint::wait` and
// `wait_for` wait, and are called without it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/clock.hpp"
#include "core/config.hpp"
#include "core/results.hpp"
#include "core/shared_event.hpp"
#include "driver/host/event_table.hpp"
#include "driver/host/stream_table.hpp"

namespace simgpu {

struct Capture;
struct Device;

// Threads have numbers of their own; streams and captures know them by these.
std::uint64_t thread_number();

// A point in a worker's timeline that can be waited for without any lock.
struct HostPoint {
  tensormem::host::Stream* worker = nullptr;  // null: passed
  std::uint64_t number = 0;
  bool has_passed() const { return worker == nullptr || worker->has_passed(number); }
  void wait() const {
    if (worker != nullptr) (void)worker->wait(number, tensormem::Wait::until_done()).ok();
  }
};

struct Stream {
  std::uint64_t serial = 0;
  tensormem::StreamId id = 0;
  Device* device = nullptr;
  void* own_context = nullptr;  // null: the primary one
  unsigned flags = 0;
  int priority = 0;
  bool is_legacy = false;
  bool is_own = false;  // the application's, to be destroyed by it
  bool alive = true;
  std::uint64_t submitted = 0;
  Clock clock;
  Capture* capture = nullptr;   // its work is written down there instead of run
  std::uint64_t unmarked = 0;   // pieces of work since the latest mark
  std::deque<HostPoint> marks;  // points of the queue, some way apart, that have not been passed
  Point now() const { return {serial, submitted}; }
  bool is_blocking() const { return (flags & 1) == 0; }
};

struct Event {
  tensormem::EventHandle handle = nullptr;
  Device* device = nullptr;
  unsigned flags = 0;
  bool alive = true;
  bool recorded = false;
  std::shared_ptr<SharedEvent> shared;  // when other processes see it, too
  std::uint64_t capture = 0;            // the capture in which it was last recorded; 0: in none
  Clock clock;
};

class Streams {
 public:
  explicit Streams(const Config& config) : config_(config) {}
  // A call that queued more than its stream has room for waits here, without the machine's lock, before it returns.
  static void wait_for_room();

  Result create(Device& device, unsigned flags, int priority, bool is_own, Stream** stream);
  // Its work goes on to the end; the handle is dead at once.
  void destroy(Stream& stream);
  // The stream behind a handle, if there is one: never follows a wrong pointer.
  Result find(void* handle, Stream** stream);
  Stream& legacy(Device& device);
  Stream& of_this_thread(Device& device);

  // Queue `task` behind everything the stream waits for.
  Result submit(Stream& stream, const tensormem::host::Task& task);
  HostPoint end_of(Stream& stream);
  std::vector<Stream*> of(Device& device);
  // Where the streams of the device end that still have work.
  std::vector<HostPoint> ends_of(Device& device);
  // The host has seen the stream pass everything given so far.
  void host_saw(const Clock& clock) { host_.merge(clock); }
  const Clock& host_clock() const { return host_; }

  Result create_event(Device& device, unsigned flags, Event** event);
  Result destroy_event(Event& event);
  Result find_event(void* handle, Event** event);
  Result record(Event& event, Stream& stream);
  Result wait(Stream& stream, const Event& event);
  bool has_passed(const Event& event) const;
  // Waits; called without the machine's lock.
  static void wait_for(const Event& event);
  Result elapsed(const Event& start, const Event& end, float* milliseconds);

  std::uint64_t own_count() const;
  std::uint64_t event_count() const;
  std::uint64_t timing_record_count() const { return timing_records_; }
  // What a context leaves behind when it is destroyed.
  void destroy_all(Device& device);
  // Those of a context beside the primary one.
  void destroy_all(const void* own_context);
  void close();

 private:
  void bound_queue(Stream& stream);
  Result order_behind(Stream& stream, Stream& other);
  Result order_with_legacy(Stream& stream);
  Result check_implicit(const Stream& legacy, Stream& other);
  Result record_shared(Event& event, Stream& stream);
  Result wait_in_capture(Stream& stream, const Event& event);
  Result wait_for_captured(Stream& stream, const Event& event);
  void bury_idle();

  std::unordered_map<void*, std::unique_ptr<Stream>> streams_;
  std::unordered_map<void*, std::unique_ptr<Event>> events_;
  std::unordered_map<Device*, Stream*> legacy_;
  std::unordered_map<std::uint64_t, Stream*> per_thread_;  // by thread and device
  std::vector<Stream*> dying_;
  Clock host_;
  const Config& config_;
  std::uint64_t timing_records_ = 0;
};

}  // namespace simgpu

#include "driver/gpu/relays.hpp"

#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "driver/gpu/gpu_platform.hpp"

namespace tensormem::gpu {

Status Relays::make(const Place& place, Relay* relay) {
  GpuApi& api = platform_.api();
  Relay made{{nullptr, place.device}, {nullptr, place.home, false}, {nullptr, place.device, false}};
  Status status = api.stream_create(place.device, &made.stream.handle);
  if (status.ok()) status = api.event_create(place.home, false, &made.begun.handle);
  if (status.ok()) status = api.event_create(place.device, false, &made.done.handle);
  if (!status.ok()) {
    destroy(made);
    return status;
  }
  *relay = made;
  return {};
}

Status Relays::find(const Place& place, Relay* relay) try {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = relays_.find(place); found != relays_.end()) {
      *relay = found->second;
      return {};
    }
  }
  Relay made;
  TM_TRY(make(place, &made));
  std::unique_lock lock(mutex_);
  const auto [at, is_new] = relays_.try_emplace(place, made);
  *relay = at->second;
  lock.unlock();
  if (!is_new) destroy(made);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note a stream", sizeof(Relay));
}

Status Relays::begin(StreamId stream, StreamRef queue, std::int32_t device, Relay* relay) {
  TM_TRY(find({stream, queue.device, device}, relay));
  TM_TRY(platform_.api().event_record(relay->begun, queue));
  return platform_.api().stream_wait_event(relay->stream, relay->begun);
}

Status Relays::end(const Relay& relay, StreamRef queue) {
  GpuApi& api = platform_.api();
  Status joined = api.event_record(relay.done, relay.stream);
  if (joined.ok()) joined = api.stream_wait_event(queue, relay.done);
  if (!joined.ok()) (void)api.stream_synchronize(relay.stream).ok();
  return joined;
}

void Relays::destroy(const Relay& relay) noexcept {
  GpuApi& api = platform_.api();
  for (const EventRef& event : {relay.begun, relay.done}) {
    if (event.handle != nullptr && !api.event_destroy(event).ok()) platform_.leave_for_later(event);
  }
  if (relay.stream.handle != nullptr && !api.stream_destroy(relay.stream).ok()) platform_.leave_for_later(relay.stream);
}

void Relays::forget(StreamId stream, std::int32_t home) noexcept {
  std::map<Place, Relay> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = relays_.lower_bound({stream, home, 0}); at != relays_.end();) {
      if (at->first.stream != stream || at->first.home != home) break;
      gone.insert(relays_.extract(at++));
    }
  }
  for (const auto& [place, relay] : gone) destroy(relay);
}

void Relays::forget_all() noexcept {
  std::map<Place, Relay> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(relays_);
  }
  for (const auto& [place, relay] : gone) destroy(relay);
}

}  // namespace tensormem::gpu

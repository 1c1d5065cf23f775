// Devices, streams and events. Memory of every kind: gpu_memory.cpp. Work on streams: gpu_work.cpp.
#include "driver/gpu/gpu_driver.hpp"

#include <new>

namespace tensormem {

namespace {

constexpr std::uint64_t kLegacyHandle = 1;     // another name of the default stream, in both vendors' interfaces
constexpr std::uint64_t kPerThreadHandle = 2;  // the calling thread's own stream of the current device

std::uint64_t key_of(gpu::StreamRef ref) {
  const auto handle = reinterpret_cast<std::uint64_t>(ref.handle);
  return handle == kPerThreadHandle ? handle | static_cast<std::uint64_t>(ref.device + 1) << 48 : handle;
}

EventHandle as_handle(std::uint64_t number) { return reinterpret_cast<EventHandle>(number); }

std::uint64_t as_number(EventHandle handle) { return reinterpret_cast<std::uint64_t>(handle); }

}  // namespace

Status GpuDriver::check_device(std::int32_t device) const noexcept {
  TM_TRY(platform_.check_usable());
  if (device >= 0 && device < platform_.device_count()) return {};
  return Status::fail(Code::invalid_argument, "the driver has no device of this number");
}

Status GpuDriver::device_count(std::int32_t* count) {
  TM_TRY(platform_.check_usable());
  *count = platform_.device_count();
  return {};
}

Status GpuDriver::device_info(std::int32_t device, DeviceInfo* info) {
  TM_TRY(check_device(device));
  return api_.device_info(device, info);
}

Status GpuDriver::memory_info(std::int32_t device, MemoryInfo* info) {
  TM_TRY(check_device(device));
  return api_.memory_info(device, info);
}

// --- Streams -----------------------------------------------------------------------------------------------------

Status GpuDriver::find_stream(StreamId stream, gpu::StreamRef* ref) const noexcept {
  TM_TRY(platform_.check_usable());
  return find_usable_stream(stream, ref);
}

Status GpuDriver::find_usable_stream(StreamId stream, gpu::StreamRef* ref) const noexcept {
  if (stream == kDefaultStream) {
    *ref = {nullptr, home_};
    return {};
  }
  GpuPlatform::StreamItem item;
  if (!platform_.streams.get(stream, &item))
    return Status::fail(Code::stream_misuse, "no such stream of this driver (destroyed, or of another one)", stream);
  *ref = item.ref;
  return {};
}

bool GpuDriver::stream_is_valid(StreamId stream) const noexcept {
  if (platform_.is_lost()) return false;
  return stream == kDefaultStream || platform_.streams.contains(stream);
}

Status GpuDriver::stream_create(std::int32_t device, StreamId* stream) {
  TM_TRY(check_device(device));
  platform_.destroy_left();
  TM_TRY(platform_.watch.check(device));
  GpuPlatform::StreamItem item{{nullptr, device}, false};
  TM_TRY(api_.stream_create(device, &item.ref.handle));
  Status noted = note_stream(item, stream);
  if (!noted.ok()) TM_TRY(api_.stream_destroy(item.ref));
  return noted;
}

Status GpuDriver::note_stream(const GpuPlatform::StreamItem& item, StreamId* stream) try {
  const std::lock_guard lock(platform_.mutex);
  const auto place = platform_.stream_numbers.try_emplace(key_of(item.ref), kDefaultStream).first;
  const std::uint64_t number = platform_.streams.add(item);
  if (number == 0) {
    platform_.stream_numbers.erase(place);
    return Status::fail(Code::out_of_memory, "no room to note a stream", sizeof item);
  }
  place->second = number;
  *stream = number;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no room to note a stream", sizeof item);
}

Status GpuDriver::stream_destroy(StreamId stream) {
  gpu::StreamRef ref;
  if (stream == kDefaultStream)
    return Status::fail(Code::stream_misuse, "the default stream cannot be destroyed", stream);
  TM_TRY(find_stream(stream, &ref));
  GpuPlatform::StreamItem item;
  if (platform_.streams.get(stream, &item) && item.imported)
    return Status::fail(Code::stream_misuse, "the stream belongs to whoever made it", stream);
  // The vendor's driver would return at once; here the stream's work is done when it is gone. One that went with its
  // context has none.
  Status waited = api_.stream_synchronize(ref);
  const bool is_gone = !waited.ok() && platform_.watch.is_reset(ref.device);
  if (!is_gone) TM_TRY(std::move(waited));
  {
    const std::lock_guard lock(platform_.mutex);
    if (!platform_.streams.remove(stream))
      return Status::fail(Code::stream_misuse, "another thread destroyed the stream", stream);
    platform_.stream_numbers.erase(key_of(ref));
  }
  platform_.relays.forget(stream, ref.device);
  if (!is_gone && !api_.stream_destroy(ref).ok()) platform_.leave_for_later(ref);
  return {};
}

Status GpuDriver::stream_synchronize(StreamId stream) {
  gpu::StreamRef ref;
  TM_TRY(find_stream(stream, &ref));
  TM_TRY(check_not_capturing(ref, stream));
  return heed(api_.stream_synchronize(ref), stream);
}

// What is captured has not run, and will not before the capture ends: to wait for it would be for ever.
Status GpuDriver::stream_wait(StreamId stream, const Wait& wait) {
  gpu::StreamRef ref;
  TM_TRY(find_stream(stream, &ref));
  TM_TRY(check_not_capturing(ref, stream));
  TM_TRY(platform_.watch.check(ref.device));
  return Driver::stream_wait(stream, wait);
}

Status GpuDriver::stream_close(StreamId stream, const Wait& wait) {
  gpu::StreamRef ref;
  TM_TRY(find_stream(stream, &ref));
  return platform_.watch.is_reset(ref.device) ? stream_destroy(stream) : Driver::stream_close(stream, wait);
}

Status GpuDriver::stream_query(StreamId stream, bool* done) {
  gpu::StreamRef ref;
  TM_TRY(find_stream(stream, &ref));
  // A capture would be ended by the question; what is captured has not run, and is not done.
  bool capturing = false;
  TM_TRY(heed(api_.stream_is_capturing(ref, &capturing), stream));
  if (capturing) {
    *done = false;
    return {};
  }
  return heed_gone(api_.stream_query(ref, done), stream, ref.device, done);
}

// What a reset took with it runs no more: whoever waits to give something back need not.
Status GpuDriver::heed_gone(Status status, StreamId stream, std::int32_t device, bool* done) {
  if (status.ok() || !platform_.watch.is_reset(device)) return heed(std::move(status), stream);
  *done = true;
  return {};
}

Status GpuDriver::stream_is_capturing(StreamId stream, bool* capturing) {
  gpu::StreamRef ref;
  TM_TRY(find_stream(stream, &ref));
  return heed(api_.stream_is_capturing(ref, capturing), stream);
}

Status GpuDriver::check_not_capturing(gpu::StreamRef queue, StreamId stream) {
  bool capturing = false;
  TM_TRY(heed(api_.stream_is_capturing(queue, &capturing), stream));
  if (!capturing) return {};
  return Status::fail(Code::stream_misuse,
                      "the stream is being captured into a graph; allocate before, and free and wait after the capture",
                      stream);
}

Status GpuDriver::stream_export(StreamId stream, std::uint64_t* native_handle) {
  gpu::StreamRef ref;
  TM_TRY(find_stream(stream, &ref));
  *native_handle = reinterpret_cast<std::uint64_t>(ref.handle);
  return {};
}

Status GpuDriver::stream_import(std::int32_t device, std::uint64_t native_handle, StreamId* stream) {
  TM_TRY(check_device(device));
  if (native_handle <= kLegacyHandle) {
    *stream = kDefaultStream;
    return {};
  }
  GpuPlatform::StreamItem item{{reinterpret_cast<gpu::NativeStream>(native_handle), device}, true};
  TM_TRY(find_known(item.ref, stream, &item.serial));
  if (*stream != kDefaultStream) return {};
  Status asked =
      native_handle == kPerThreadHandle ? Status() : api_.stream_device(device, item.ref.handle, &item.ref.device);
  if (!asked.ok() && asked.code() == Code::driver_error && api_.is_gone(asked.failure().driver_code))
    return Status::fail(Code::stream_misuse, "the handle is not that of a stream (any more)", native_handle);
  TM_TRY(std::move(asked));
  return note_stream(item, stream);
}

Status GpuDriver::find_known(gpu::StreamRef ref, StreamId* known, std::uint64_t* serial) {
  GpuPlatform::StreamItem item;
  *known = kDefaultStream;
  {
    const std::lock_guard lock(platform_.mutex);
    const auto found = platform_.stream_numbers.find(key_of(ref));
    if (found != platform_.stream_numbers.end() && platform_.streams.get(found->second, &item)) *known = found->second;
  }
  if (*known != kDefaultStream && !item.imported) return {};
  if (reinterpret_cast<std::uint64_t>(ref.handle) == kPerThreadHandle) return {};
  Status asked = api_.stream_serial(ref, serial);
  const bool gone = !asked.ok() && asked.code() == Code::driver_error && api_.is_gone(asked.failure().driver_code);
  if (*known != kDefaultStream && (gone || *serial != item.serial)) {
    forget_stream(*known, item.ref.device);
    *known = kDefaultStream;
  }
  if (gone) return Status::fail(Code::stream_misuse, "the handle is not that of a stream (any more)", key_of(ref));
  return asked;
}

void GpuDriver::forget_stream(StreamId stream, std::int32_t device) noexcept {
  // A stream that its owner destroyed may still have work, and only the whole device can be asked about it. What a
  // device that is lost has not done, it never will.
  (void)api_.device_synchronize(device).ok();
  platform_.relays.forget(stream, device);
  const std::lock_guard lock(platform_.mutex);
  GpuPlatform::StreamItem item;
  if (!platform_.streams.get(stream, &item) || !platform_.streams.remove(stream)) return;
  const auto found = platform_.stream_numbers.find(key_of(item.ref));
  if (found != platform_.stream_numbers.end() && found->second == stream) platform_.stream_numbers.erase(found);
}

Status GpuDriver::heed(Status status, StreamId stream) {
  if (status.ok() || status.code() != Code::driver_error || !api_.is_gone(status.failure().driver_code)) return status;
  GpuPlatform::StreamItem item{{nullptr, home_}};
  const bool is_known = stream == kDefaultStream || platform_.streams.get(stream, &item);
  TM_TRY(platform_.watch.check(item.ref.device));
  if (!is_known || !item.imported) return status;
  // Something else may be what is gone: an event, or a context.
  bool done = false;
  const Status asked = api_.stream_query(item.ref, &done);
  if (asked.ok() || asked.code() != Code::driver_error || !api_.is_gone(asked.failure().driver_code)) return status;
  forget_stream(stream, item.ref.device);
  return Status::fail(Code::stream_misuse, "the library that made the stream destroyed it", stream);
}

// --- Events ------------------------------------------------------------------------------------------------------

Status GpuDriver::find_event(EventHandle event, gpu::EventRef* ref) const noexcept {
  TM_TRY(platform_.check_usable());
  if (platform_.events.get(as_number(event), ref)) return {};
  return Status::fail(Code::invalid_argument, "no such event (null, destroyed, or not made by this driver)");
}

Status GpuDriver::make_event(std::int32_t device, bool timed, EventHandle* event) {
  TM_TRY(check_device(device));
  platform_.destroy_left();
  TM_TRY(platform_.watch.check(device));
  gpu::EventRef ref{nullptr, device, timed};
  TM_TRY(api_.event_create(device, timed, &ref.handle));
  const std::uint64_t number = platform_.events.add(ref);
  if (number == 0) {
    TM_TRY(api_.event_destroy(ref));
    return Status::fail(Code::out_of_memory, "no room to note an event", sizeof ref);
  }
  *event = as_handle(number);
  return {};
}

Status GpuDriver::event_destroy(EventHandle event) {
  gpu::EventRef ref;
  if (platform_.is_lost()) return platform_.check_usable();
  if (!platform_.events.get(as_number(event), &ref) || !platform_.events.remove(as_number(event)))
    return Status::fail(Code::invalid_argument, "no such event (null, destroyed, or not made by this driver)");
  if (GpuPlatform::is_in_host_function() || !api_.event_destroy(ref).ok()) platform_.leave_for_later(ref);
  return {};
}

Status GpuDriver::event_record(EventHandle event, StreamId stream) {
  gpu::EventRef mark;
  gpu::StreamRef queue;
  TM_TRY(find_event(event, &mark));
  TM_TRY(find_stream(stream, &queue));
  if (mark.device == queue.device) return heed(api_.event_record(mark, queue), stream);
  return heed(record_elsewhere(event, mark.timed, queue), stream);
}

// A vendor's event belongs to one device. Ours goes where it is recorded: another takes the old one's place.
Status GpuDriver::record_elsewhere(EventHandle event, bool timed, gpu::StreamRef queue) {
  gpu::EventRef moved{nullptr, queue.device, timed};
  TM_TRY(api_.event_create(queue.device, timed, &moved.handle));
  Status recorded = api_.event_record(moved, queue);
  if (recorded.ok() && !platform_.events.exchange(as_number(event), &moved))
    recorded = Status::fail(Code::invalid_argument, "another thread destroyed the event");
  if (!api_.event_destroy(moved).ok()) platform_.leave_for_later(moved);
  return recorded;
}

Status GpuDriver::event_query(EventHandle event, bool* done) {
  gpu::EventRef ref;
  TM_TRY(find_event(event, &ref));
  return heed_gone(api_.event_query(ref, done), kDefaultStream, ref.device, done);
}

Status GpuDriver::event_synchronize(EventHandle event) {
  gpu::EventRef ref;
  TM_TRY(find_event(event, &ref));
  return platform_.watch.explain(api_.event_synchronize(ref), ref.device);
}

Status GpuDriver::event_elapsed(EventHandle start, EventHandle end, double* seconds) {
  gpu::EventRef from;
  gpu::EventRef to;
  TM_TRY(find_event(start, &from));
  TM_TRY(find_event(end, &to));
  if (!from.timed || !to.timed)
    return Status::fail(Code::invalid_argument, "an event keeps the time only if it was made for it");
  return api_.event_elapsed(from, to, seconds);
}

Status GpuDriver::stream_wait_event(StreamId stream, EventHandle event) {
  gpu::EventRef mark;
  gpu::StreamRef queue;
  TM_TRY(find_event(event, &mark));
  TM_TRY(find_stream(stream, &queue));
  return heed(api_.stream_wait_event(queue, mark), stream);
}

}  // namespace tensormem

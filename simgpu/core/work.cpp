// The work a machine puts on its streams: copies, fills, host functions, and the pretended kernel.
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/machine.hpp"
#include "driver/host/task_queue.hpp"

namespace simgpu {

namespace {

namespace host = tensormem::host;
using host::CopyWork;
using host::FillWork;
using tensormem::CopyShape;
using tensormem::Pitched;

thread_local bool t_in_callback = false;

struct Callback {
  void (*function)(void*);
  void* argument;
  bool alone;
};

// One for the process: a host function that waits keeps those of all other streams waiting.
std::mutex g_host_functions;

void run_callback(const Callback& callback) {
  std::unique_lock lock(g_host_functions, std::defer_lock);
  if (callback.alone) lock.lock();
  t_in_callback = true;
  callback.function(callback.argument);
  t_in_callback = false;
}

struct Staging {
  void* memory;
};

void drop_staging(const Staging& staging) { std::free(staging.memory); }

struct Nothing {};
void do_nothing(const Nothing&) {}

std::uint64_t extent(const Pitched& place, const CopyShape& shape) {
  return (shape.depth - 1) * place.plane_pitch + (shape.height - 1) * place.row_pitch + shape.width;
}

}  // namespace

bool is_in_callback() { return t_in_callback; }

// Without the habit, the device that memory lives on does what another may not.
Access Machine::access_of(const Stream& stream, bool write, By who) const {
  return {*stream.device, write, config.habits.peer_grants ? who : By::owner};
}

void Machine::check_order(const Range& range, const Stream& stream, const char* verb) {
  if (range.kind != Kind::pooled || stream.clock.covers(range.ready)) return;
  violation(std::string("memory was ") + verb + " on a stream that is not behind its allocation", range.start);
}

Result Machine::resolve(const Pitched& place, const CopyShape& shape, const Access& access, Span* span) {
  const std::uint64_t size = extent(place, shape);
  const Result found = memory.resolve(place.address, size, access, span);
  if (found == kSuccess) return kSuccess;
  if (found == kPeerAccessNotEnabled) return kInvalidValue;  // as the drivers answer; nothing was out of order
  violation("work was given addresses of device memory that is not allocated, mapped or open to the device",
            place.address);
  return kInvalidValue;
}

void Machine::note_uses(const Span& span, Stream& stream) {
  if (stream.capture != nullptr) return;  // not work yet
  for (Range* range : span.ranges) {
    check_order(*range, stream, "touched");
    range->uses[stream.serial] = stream.submitted;
  }
}

Result Machine::copy(const CopyWork& asked, Stream& stream, By who, HostPoint* wait) {
  if (!host::check_copy(asked).ok()) return kInvalidValue;
  Span to;
  Span from;
  SIM_TRY(resolve(asked.destination, asked.shape, access_of(stream, true, who), &to));
  SIM_TRY(resolve(asked.source, asked.shape, access_of(stream, false, who), &from));
  CopyWork work = asked;
  work.destination.address = to.alias;
  work.source.address = from.alias;
  void* staging = nullptr;
  if (from.pageable && !to.pageable && stream.capture == nullptr) {
    // Pageable memory is read before the call returns; the caller may reuse it at once.
    const CopyShape& shape = asked.shape;
    staging = std::malloc(shape.width * shape.height * shape.depth);
    if (staging == nullptr) return kOutOfMemory;
    const Pitched packed{reinterpret_cast<std::uint64_t>(staging), 0, shape.width, shape.width * shape.height};
    host::run_copy({packed, work.source, shape});
    work.source = packed;
  }
  if (const Result queued = streams.submit(stream, host::make_task<host::run_copy>(work)); queued != kSuccess) {
    std::free(staging);
    return queued;
  }
  note_uses(to, stream);
  note_uses(from, stream);
  if (staging != nullptr) (void)streams.submit(stream, host::make_task<drop_staging>(Staging{staging}));
  if (to.pageable && stream.capture == nullptr) *wait = streams.end_of(stream);
  return kSuccess;
}

Result Machine::fill(const FillWork& asked, Stream& stream) {
  if (!host::check_fill(asked).ok()) return kInvalidValue;
  Span to;
  SIM_TRY(resolve(asked.destination, asked.shape, access_of(stream, true, By::worker), &to));
  if (to.pageable) return kInvalidValue;  // a device cannot set memory it does not reach
  FillWork work = asked;
  work.destination.address = to.alias;
  SIM_TRY(streams.submit(stream, host::make_task<host::run_fill>(work)));
  note_uses(to, stream);
  return kSuccess;
}

Result Machine::call_back(void (*function)(void*), void* argument, Stream& stream) {
  if (function == nullptr) return kInvalidValue;
  return streams.submit(
      stream, host::make_task<run_callback>(Callback{function, argument, config.habits.serial_host_functions}));
}

Result Machine::touch(std::uint64_t address, std::uint64_t nbytes, bool write, Stream& stream) {
  if (nbytes == 0) return kInvalidValue;
  Span span;
  const Access access = access_of(stream, write, By::worker);
  const Result found = resolve({address, 0, nbytes, nbytes}, CopyShape{nbytes, 1, 1}, access, &span);
  if (found != kSuccess || span.pageable) {
    stream.device->broken = kIllegalAddress;  // a kernel that goes astray takes its context with it
    return kSuccess;
  }
  SIM_TRY(streams.submit(stream, host::make_task<do_nothing>(Nothing{})));
  note_uses(span, stream);
  return kSuccess;
}

}  // namespace simgpu

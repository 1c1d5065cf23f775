// Work on streams: copies, fills and host functions, each on a stream of a device that has memory in it.
#include <algorithm>
#include <new>

#include "base/align.hpp"
#include "base/ending.hpp"
#include "driver/gpu/gpu_driver.hpp"
#include "driver/host/copy.hpp"

namespace tensormem {

namespace {

struct HostWork {
  HostFunction function;
  void* argument;
};

void run_host_work(void* argument) {
  const HostWork work = *static_cast<HostWork*>(argument);
  delete static_cast<HostWork*>(argument);
  GpuPlatform::enter_host_function();
  work.function(work.argument);
  GpuPlatform::leave_host_function();
}

// A value whose halves are the same is a narrower one, down to bytes.
void narrow(std::uint64_t* value, std::uint32_t* element_bytes) {
  while (*element_bytes > 1) {
    const std::uint32_t half_bits = *element_bytes * 4;
    const std::uint64_t mask = (1ULL << half_bits) - 1;
    if ((*value & mask) != (*value >> half_bits & mask)) return;
    *value &= mask;
    *element_bytes /= 2;
  }
}

}  // namespace

// With one device there is nothing to ask: all memory is its own, or within its reach.
Status GpuDriver::find_place(Pitched* side, std::int32_t asker) const {
  if (platform_.device_count() == 1) {
    side->device = home_;
    return {};
  }
  if (side->device == kUnknownPlace) TM_TRY(api_.place_of(asker, side->address, &side->device));
  if (side->device >= kHostPlace && side->device < platform_.device_count()) return {};
  return Status::fail(Code::invalid_argument, "the driver has no device of this number");
}

// A device reaches another's memory with a grant at best, and slowly: work is done where memory of it is. The stream it
// was asked for on is that of another device then, and waits for it.
template <typename Work>
Status GpuDriver::run_at(std::int32_t device, StreamId stream, gpu::StreamRef queue, Work work) {
  if (device == queue.device || device == kHostPlace) return heed(work(queue), stream);
  gpu::Relay relay;
  TM_TRY(heed(platform_.relays.begin(stream, queue, device, &relay), stream));
  Status worked = work(relay.stream);
  Status joined = platform_.relays.end(relay, queue);
  return worked.ok() ? heed(std::move(joined), stream) : std::move(worked);
}

Status GpuDriver::copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream) {
  gpu::StreamRef queue;
  TM_TRY(check_not_ending(stream));
  TM_TRY(find_stream(stream, &queue));
  Pitched to = destination;
  Pitched from = source;
  to.device = from.device = 0;  // whose memory it is plays no part in whether the box is one
  TM_TRY(host::check_copy({to, from, shape}));
  to.device = destination.device;
  from.device = source.device;
  TM_TRY(find_place(&to, queue.device));
  TM_TRY(find_place(&from, queue.device));
  const bool here = to.device == queue.device || from.device == queue.device;
  const std::int32_t place = here ? queue.device : std::max(from.device, to.device);
  if (is_between(to, from)) join_devices(to, from, shape);
  return run_at(place, stream, queue, [&](gpu::StreamRef at) { return copy_box(to, from, shape, at); });
}

bool GpuDriver::is_between(const Pitched& to, const Pitched& from) noexcept {
  return to.device != from.device && to.device != kHostPlace && from.device != kHostPlace;
}

// What the devices can reach of one another is granted: copies are direct then.
void GpuDriver::join_devices(const Pitched& to, const Pitched& from, const CopyShape& shape) noexcept {
  const auto extent = [&](const Pitched& side) {
    return (shape.depth - 1) * side.plane_pitch + (shape.height - 1) * side.row_pitch + shape.width;
  };
  platform_.grants.join(to.device, from.device);
  platform_.grants.open(to.address, extent(to), from.device, to.device);
  platform_.grants.open(from.address, extent(from), to.device, from.device);
}

Status GpuDriver::copy_box(Pitched to, Pitched from, const CopyShape& shape, gpu::StreamRef queue) {
  const bool between = is_between(to, from);
  const auto copy_rows = [&](const CopyShape& rows) {
    return between ? api_.copy_box_between(to, from, rows, queue) : api_.copy_box(to, from, rows, queue);
  };
  if (shape.height == 1 && shape.depth == 1) {
    return between ? api_.copy_line_between(to, from, shape.width, queue)
                   : api_.copy_line(to.address, from.address, shape.width, queue);
  }
  if (shape.height == 1) {  // planes of one row are rows
    to.row_pitch = to.plane_pitch;
    from.row_pitch = from.plane_pitch;
    return copy_rows({shape.width, shape.depth, 1});
  }
  const bool whole_rows =
      shape.depth == 1 || (to.plane_pitch % to.row_pitch == 0 && from.plane_pitch % from.row_pitch == 0);
  if (whole_rows) return copy_rows(shape);
  for (std::uint64_t plane = 0; plane < shape.depth; ++plane) {
    TM_TRY(copy_rows({shape.width, shape.height, 1}));
    to.address += to.plane_pitch;
    from.address += from.plane_pitch;
  }
  return {};
}

// What is there is copied behind itself until all rows are there.
Status GpuDriver::repeat_first_row(const Pitched& to, const CopyShape& shape, gpu::StreamRef queue) {
  for (std::uint64_t done = 1; done < shape.height; done *= 2) {
    Pitched rest = to;
    rest.address += done * to.row_pitch;
    const std::uint64_t more = std::min(done, shape.height - done);
    TM_TRY(api_.copy_box(rest, to, {shape.width, more, 1}, queue));
  }
  return {};
}

Status GpuDriver::fill_plane(const Pitched& to, const CopyShape& shape, std::uint64_t value,
                             std::uint32_t element_bytes, gpu::StreamRef queue) {
  const std::uint64_t count = shape.width / element_bytes;
  const bool gapless = shape.height == 1 || to.row_pitch == shape.width;
  const bool all_rows = gapless || (element_bytes != 8 && api_.fills_rows(element_bytes));
  const std::uint64_t elements = gapless ? count * shape.height : count;
  if (element_bytes == 8) {
    TM_TRY(api_.fill_wide(to.address, value, elements, queue));
  } else {
    const std::uint64_t rows = gapless || !all_rows ? 1 : shape.height;
    TM_TRY(
        api_.fill({to.address, to.row_pitch, static_cast<std::uint32_t>(value), element_bytes, elements, rows}, queue));
  }
  return all_rows ? Status() : repeat_first_row(to, shape, queue);
}

Status GpuDriver::fill(const Pitched& destination, const CopyShape& shape, std::uint64_t value,
                       std::uint32_t element_bytes, StreamId stream) {
  gpu::StreamRef queue;
  TM_TRY(check_not_ending(stream));
  TM_TRY(find_stream(stream, &queue));
  Pitched to = destination;
  to.device = 0;
  TM_TRY(host::check_fill({to, shape, value, element_bytes}));
  if (!is_aligned(to.address, element_bytes) || (shape.height > 1 && !is_aligned(to.row_pitch, element_bytes)))
    return Status::fail(Code::invalid_argument, "a GPU fills whole elements: address and pitch are multiples of one");
  narrow(&value, &element_bytes);
  to.device = destination.device;
  TM_TRY(find_place(&to, queue.device));
  return run_at(to.device, stream, queue, [&](gpu::StreamRef at) -> Status {
    for (std::uint64_t plane = 0; plane < shape.depth; ++plane, to.address += to.plane_pitch)
      TM_TRY(fill_plane(to, shape, value, element_bytes, at));
    return {};
  });
}

Status GpuDriver::launch_host(HostFunction function, void* argument, StreamId stream) {
  gpu::StreamRef queue;
  TM_TRY(check_not_ending(stream));
  TM_TRY(find_stream(stream, &queue));
  auto work = std::unique_ptr<HostWork>(new (std::nothrow) HostWork{function, argument});
  if (work == nullptr) return Status::fail(Code::out_of_memory, "no memory to note the work", sizeof(HostWork));
  TM_TRY(api_.launch_host(run_host_work, work.get(), queue));
  (void)work.release();  // the stream's now
  return {};
}

}  // namespace tensormem

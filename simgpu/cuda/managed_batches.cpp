// CUDA functions about many ranges of managed memory at once: prefetched, or given up with what is in them.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

struct Batch {
  const DevicePointer* addresses;
  const std::size_t* sizes;
  std::size_t count;
};

// Where each range goes: `from_range[i]` is the first that goes to place i. Null: nowhere.
struct Places {
  const Location* places = nullptr;
  const std::size_t* from_range = nullptr;
  std::size_t count = 0;
};

int ordinal_of(const Location& where) { return where.type == kLocationDevice ? where.id : -1; }

simgpu::Result check(const Batch& batch, const Places& places, std::uint64_t flags, StreamHandle stream) {
  const bool given = batch.addresses != nullptr && batch.sizes != nullptr && batch.count != 0 && flags == 0;
  // The legacy stream takes no batches.
  if (!given || number(stream) <= kLegacyStream) return simgpu::kInvalidValue;
  if (places.places == nullptr) return simgpu::kSuccess;
  const bool placed = places.from_range != nullptr && places.count != 0 && places.count <= batch.count;
  return placed && places.from_range[0] == 0 ? simgpu::kSuccess : simgpu::kInvalidValue;
}

simgpu::Result run(const char* function, const Batch& batch, const Places& places, std::uint64_t flags,
                   StreamHandle handle) {
  return serve_in_context(
      function, {batch.count, places.count, number(handle)}, [&](Machine& machine, Device& current) {
        const std::lock_guard lock(machine.mutex);
        SIM_TRY(check(batch, places, flags, handle));
        Stream* stream = nullptr;
        SIM_TRY(find_stream(machine, current, handle, &stream));
        for (std::size_t i = 0; i < batch.count; ++i) {
          const Range* const range = machine.memory.find(batch.addresses[i]);
          const bool fits = range != nullptr && range->is_managed() && batch.sizes[i] != 0 &&
                            batch.sizes[i] <= range->size - (batch.addresses[i] - range->start);
          if (!fits) return simgpu::kInvalidValue;
        }
        for (std::size_t i = 0, place = 0; i < batch.count; ++i) {
          while (place + 1 < places.count && places.from_range[place + 1] <= i) ++place;
          if (places.places != nullptr)
            machine.memory.find(batch.addresses[i])->advice.prefetched = ordinal_of(places.places[place]);
          SIM_TRY(machine.touch(batch.addresses[i], batch.sizes[i], true, *stream));
        }
        return simgpu::kSuccess;
      });
}

}  // namespace

extern "C" {

Result cuMemPrefetchBatchAsync(DevicePointer* addresses, std::size_t* sizes, std::size_t count, Location* places,
                               std::size_t* from_range, std::size_t place_count, std::uint64_t flags,
                               StreamHandle stream) {
  if (places == nullptr) return kInvalidValue;
  return run("cuMemPrefetchBatchAsync", {addresses, sizes, count}, {places, from_range, place_count}, flags, stream);
}

// What is given up keeps its bytes here; a real driver may return any.
Result cuMemDiscardBatchAsync(DevicePointer* addresses, std::size_t* sizes, std::size_t count, std::uint64_t flags,
                              StreamHandle stream) {
  return run("cuMemDiscardBatchAsync", {addresses, sizes, count}, {}, flags, stream);
}

Result cuMemDiscardAndPrefetchBatchAsync(DevicePointer* addresses, std::size_t* sizes, std::size_t count,
                                         Location* places, std::size_t* from_range, std::size_t place_count,
                                         std::uint64_t flags, StreamHandle stream) {
  if (places == nullptr) return kInvalidValue;
  return run("cuMemDiscardAndPrefetchBatchAsync", {addresses, sizes, count}, {places, from_range, place_count}, flags,
             stream);
}

}  // extern "C"

}  // namespace tensormem::cuda

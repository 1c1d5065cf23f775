// Owns: the narrow waist. Everything above reaches an operating system or a device through these functions alone;
// everything below (host/, cuda/, hip/) implements them and nothing else. One contract for all of them:
//
//  - Every function may be called from any thread at any time, and takes no lock of the caller's into a wait.
//  - On failure nothing has changed, outputs are untouched, and the Status carries facts. Codes more exact than
//    `driver_error` are used only when surely true.
//  - Sizes are bytes; size 0 is `invalid_size`; an alignment that is no power of two is `invalid_alignment`.
//  - An unknown or destroyed stream is `stream_misuse`; one made before a fork is `stream_misuse` in the child.
//  - "On a stream" means: ordered after all earlier work of that stream, and possibly not done when the call returns.
//    The memory must stay alive until it is. Work on `kDefaultStream` of the host driver is done when the call returns.
//  - Whoever creates, destroys. Destroying a stream waits for its work; destroying physical memory that is still mapped
//    keeps its pages until the last mapping is gone, as drivers do. Refusing that is the job of vmm/.
//  - Virtual memory made before a fork belongs to the parent: in the child its ranges cannot be touched or mapped, but
//    can be unmapped, destroyed and released without harm to the parent. Memory to share is exported, not forked.
//  - No function throws, none needs the GIL, none calls Python.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "base/wait.hpp"
#include "driver/types.hpp"

namespace tensormem {

class Driver {
 public:
  virtual ~Driver() = default;

  // --- Who it is -----------------------------------------------------------------------------------------------
  virtual const char* name() const noexcept = 0;  // "host", "cuda", "rocm"
  // The device whose default stream is kDefaultStream.
  virtual std::int32_t home() const noexcept { return 0; }
  virtual Status device_count(std::int32_t* count) = 0;
  virtual Status device_info(std::int32_t device, DeviceInfo* info) = 0;
  virtual Status memory_info(std::int32_t device, MemoryInfo* info) = 0;

  // --- Plain memory: usable as soon as the call returns, by every stream -----------------------------------------
  virtual Status allocate(std::int32_t device, std::uint64_t nbytes, const AllocationOptions& options,
                          std::uint64_t* address) = 0;
  // `nbytes` and `options` are those of the allocation.
  virtual Status deallocate(std::int32_t device, std::uint64_t address, std::uint64_t nbytes,
                            const AllocationOptions& options) = 0;
  // Page-lock memory that somebody else allocated, and let it go again.
  virtual Status pin(std::uint64_t address, std::uint64_t nbytes) = 0;
  virtual Status unpin(std::uint64_t address, std::uint64_t nbytes) = 0;

  // --- Stream-ordered memory: usable by work queued on `stream` after the call --------------------------------------
  // A pool of its own, which keeps up to `keep_bytes` of free memory for its next allocations. A driver that keeps
  // nothing has none. Destroying one that still has memory out ends it when that is back.
  virtual Status async_pool_create(std::int32_t device, std::uint64_t keep_bytes, AsyncPool* pool);
  virtual Status async_pool_destroy(AsyncPool pool);
  virtual Status async_pool_keep(AsyncPool pool, std::uint64_t keep_bytes);
  virtual Status allocate_async(std::int32_t device, AsyncPool pool, std::uint64_t nbytes, StreamId stream,
                                std::uint64_t* address) = 0;
  virtual Status deallocate_async(std::int32_t device, std::uint64_t address, std::uint64_t nbytes,
                                  StreamId stream) = 0;
  // Give cached stream-ordered memory back to the system, keeping at most `keep_bytes`.
  virtual Status trim_async(std::int32_t device, AsyncPool pool, std::uint64_t keep_bytes) = 0;

  // --- Managed memory -----------------------------------------------------------------------------------------------
  // Start moving the bytes to `device` (-1: the host), on `stream`.
  virtual Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t device, StreamId stream) = 0;
  // Say how managed memory will be used, and by which device (-1: the host). It never changes what the bytes are.
  virtual Status advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device);

  // --- Memory of others -----------------------------------------------------------------------------------------
  // Addresses of `device` for `nbytes` of memory behind a descriptor (a DMA-BUF, or what another API exported). The
  // driver gets a duplicate; the descriptor stays the caller's. Released exactly once, when no work uses it any more.
  virtual Status external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes, std::uint64_t* address);
  virtual Status external_release(std::uint64_t address);

  // --- Streams
  // --------------------------------------------------------------------------------------------------------
  virtual Status stream_create(std::int32_t device, StreamId* stream) = 0;
  virtual Status stream_destroy(StreamId stream) = 0;
  virtual Status stream_synchronize(StreamId stream) = 0;
  // The same for callers that can stop: the wait may end before the work does, and changes nothing then. A driver that
  // says nothing else is asked again and again, since what the vendors offer hears no signals.
  virtual Status stream_wait(StreamId stream, const Wait& wait);
  virtual Status stream_close(StreamId stream, const Wait& wait);
  virtual Status stream_query(StreamId stream, bool* done) = 0;
  // The vendor's own handle (a CUstream); streams made by others come in through `stream_import` and are never
  // destroyed.
  virtual Status stream_export(StreamId stream, std::uint64_t* native_handle) = 0;
  virtual Status stream_import(std::int32_t device, std::uint64_t native_handle, StreamId* stream) = 0;
  // Whether the stream is being captured into a graph: what is queued on it then does not run, and asking how far it
  // is would end the capture.
  virtual Status stream_is_capturing(StreamId stream, bool* capturing);
  // Cheap enough for every allocation; false for foreign and pre-fork streams, and for destroyed ones as soon as their
  // work is done.
  virtual bool stream_is_valid(StreamId stream) const noexcept = 0;
  // Whether work on the stream is done when the call that gives it returns. Waiting for an event on one blocks the
  // caller.
  virtual bool stream_is_inline(StreamId stream) const noexcept = 0;

  // --- Events
  // -----------------------------------------------------------------------------------------------------------
  virtual Status event_create(std::int32_t device, EventHandle* event) = 0;
  // One whose recordings keep the time, for `event_elapsed`; a driver may pay for it with every recording.
  virtual Status event_create_timed(std::int32_t device, EventHandle* event);
  virtual Status event_destroy(EventHandle event) = 0;
  virtual Status event_record(EventHandle event, StreamId stream) = 0;
  // An event that was never recorded is done.
  virtual Status event_query(EventHandle event, bool* done) = 0;
  virtual Status event_synchronize(EventHandle event) = 0;
  // As `stream_wait`; an event that is destroyed meanwhile is `stream_misuse`.
  virtual Status event_wait(EventHandle event, const Wait& wait);
  virtual Status event_elapsed(EventHandle start, EventHandle end, double* seconds) = 0;
  // Work queued on `stream` from now on starts after what `event` marks at this moment.
  virtual Status stream_wait_event(StreamId stream, EventHandle event) = 0;

  // --- Work on a stream
  // -------------------------------------------------------------------------------------------------- Source and
  // destination must not overlap.
  virtual Status copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream) = 0;
  // Repeats the low `element_bytes` (1, 2, 4 or 8) of `value` over the box; the width is a multiple of it.
  virtual Status fill(const Pitched& destination, const CopyShape& shape, std::uint64_t value,
                      std::uint32_t element_bytes, StreamId stream) = 0;
  virtual Status launch_host(HostFunction function, void* argument, StreamId stream) = 0;

  // --- Virtual memory
  // ----------------------------------------------------------------------------------------------------
  virtual Status granularity(std::int32_t device, Granularity* granularity) = 0;
  virtual Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) = 0;
  virtual Status release(std::uint64_t address, std::uint64_t size) = 0;
  virtual Status physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                                 PhysicalHandle* physical) = 0;
  virtual Status physical_destroy(PhysicalHandle physical) = 0;
  virtual Status physical_info(PhysicalHandle physical, PhysicalInfo* info) = 0;
  // Mapped memory cannot be touched until `set_access` says so.
  virtual Status map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical,
                     std::uint64_t physical_offset) = 0;
  // The pieces one behind the other, with `access` for `device` unless it is `none`: all of it or nothing. A driver
  // that can do it in fewer steps says how.
  virtual Status map_run(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::int32_t device,
                         AccessFlags access);
  virtual Status unmap(std::uint64_t address, std::uint64_t size) = 0;
  virtual Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) = 0;
  // The descriptor is the caller's to close. Importing duplicates it.
  virtual Status physical_export(PhysicalHandle physical, std::int32_t* fd) = 0;
  virtual Status physical_import(std::int32_t device, std::int32_t fd, PhysicalHandle* physical) = 0;
};

}  // namespace tensormem

// Owns: what a vendor's driver library must offer, in the vendor's own handles: one thin call each, checked, made in
// the right device's context, and with the caller's context left as it was. A vendor is a folder that implements this.
// Must not know: stream ids, resources, or our tables: gpu_driver.hpp turns these calls into the waist of driver.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "driver/gpu/device_attribute.hpp"
#include "driver/gpu/driver_function.hpp"
#include "driver/types.hpp"

namespace tensormem::gpu {

using NativeStream = void*;
using NativeEvent = void*;
using NativePhysical = std::uint64_t;
using NativeExternal = void*;
using NativePool = void*;

// A handle the vendor gave, and the device it belongs to.
struct StreamRef {
  NativeStream handle = nullptr;  // null: the device's default stream
  std::int32_t device = 0;
};

struct EventRef {
  NativeEvent handle = nullptr;
  std::int32_t device = 0;
  bool timed = false;
};

struct PoolRef {
  NativePool handle = nullptr;
  std::int32_t device = 0;
};

// Memory of others: the vendor's object for it, the device that imported it, and where it is mapped (0: nowhere).
struct ExternalRef {
  NativeExternal handle = nullptr;
  std::int32_t device = 0;
  std::uint64_t address = 0;
};

// The same element of 1, 2 or 4 bytes over `height` rows of `count` elements.
struct FillRows {
  std::uint64_t address = 0;
  std::uint64_t row_pitch = 0;
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;
  std::uint64_t count = 0;
  std::uint64_t height = 1;
};

// Which vendor's numbers a failure speaks in; the second fact of a `driver_error`. 0 is errno.
enum class ErrorNumbers : std::uint64_t { system = 0, cuda = 1, hip = 2 };

class GpuApi {
 public:
  virtual ~GpuApi() = default;

  virtual const char* name() const noexcept = 0;
  virtual std::int32_t device_count() const noexcept = 0;
  virtual std::int32_t version() const noexcept = 0;
  virtual bool is_simulated() const noexcept = 0;
  // Every function of the vendor's library that may be called.
  virtual std::vector<const char*> functions() const = 0;
  // Whose numbers its failures are.
  virtual ErrorNumbers numbers() const noexcept = 0;
  // The file that the functions are from.
  virtual const char* library() const noexcept = 0;
  // Every function of the table; empty when the table was not opened to be counted.
  virtual std::vector<CallCount> calls() const = 0;
  // What the driver calls an answer and says about it; null when it does not know it either.
  virtual const char* error_name(std::int32_t code) const noexcept = 0;
  virtual const char* error_text(std::int32_t code) const noexcept = 0;
  virtual Status device_info(std::int32_t device, DeviceInfo* info) = 0;
  // False where the driver does not know this fact.
  virtual bool attribute(std::int32_t device, DeviceAttribute attribute, std::int32_t* value) noexcept = 0;
  virtual Status memory_info(std::int32_t device, MemoryInfo* info) = 0;
  virtual bool is_out_of_memory(std::int32_t code) const noexcept = 0;
  // Lets go of what it holds of the devices themselves.
  virtual void close() noexcept = 0;

  virtual Status allocate(std::int32_t device, MemoryKind kind, std::uint64_t nbytes, std::uint64_t* address) = 0;
  virtual Status deallocate(std::int32_t device, MemoryKind kind, std::uint64_t address) = 0;
  virtual Status pin(std::int32_t device, std::uint64_t address, std::uint64_t nbytes) = 0;
  virtual Status unpin(std::int32_t device, std::uint64_t address) = 0;
  virtual Status pool_create(std::int32_t device, NativePool* pool) = 0;
  virtual Status pool_destroy(PoolRef pool) = 0;
  // How much free memory it keeps.
  virtual Status pool_keep(PoolRef pool, std::uint64_t keep_bytes) = 0;
  virtual Status pool_trim(PoolRef pool, std::uint64_t keep_bytes) = 0;
  virtual Status allocate_async(PoolRef pool, std::uint64_t nbytes, StreamRef stream, std::uint64_t* address) = 0;
  virtual Status deallocate_async(std::uint64_t address, StreamRef stream) = 0;
  virtual Status prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t to_device, StreamRef stream) = 0;
  virtual Status advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device) = 0;

  // The vendor's driver owns the descriptor when this went well, and only then.
  virtual Status external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes,
                                 NativeExternal* external) = 0;
  virtual Status external_map(const ExternalRef& external, std::uint64_t nbytes, std::uint64_t* address) = 0;
  virtual Status external_unmap(const ExternalRef& external) = 0;
  virtual Status external_destroy(const ExternalRef& external) = 0;

  virtual Status stream_create(std::int32_t device, NativeStream* stream) = 0;
  virtual Status stream_destroy(StreamRef stream) = 0;
  virtual Status stream_synchronize(StreamRef stream) = 0;
  virtual Status stream_query(StreamRef stream, bool* done) = 0;
  virtual Status stream_is_capturing(StreamRef stream, bool* capturing) = 0;
  // A number that no other stream of the process ever has; 0 where the driver does not give any.
  virtual Status stream_serial(StreamRef stream, std::uint64_t* serial) = 0;
  // Waits for all work of a device, also of streams that are gone.
  virtual Status device_synchronize(std::int32_t device) = 0;
  // Whether an answer means that a stream's handle is not one any more. Both vendors have the same numbers.
  virtual bool is_gone(std::int32_t code) const noexcept = 0;
  // The device of a stream that somebody else made.
  virtual Status stream_device(std::int32_t guess, NativeStream stream, std::int32_t* device) = 0;

  virtual Status event_create(std::int32_t device, bool timed, NativeEvent* event) = 0;
  virtual Status event_destroy(EventRef event) = 0;
  virtual Status event_record(EventRef event, StreamRef stream) = 0;
  virtual Status event_query(EventRef event, bool* done) = 0;
  virtual Status event_synchronize(EventRef event) = 0;
  virtual Status event_elapsed(EventRef start, EventRef end, double* seconds) = 0;
  virtual Status stream_wait_event(StreamRef stream, EventRef event) = 0;

  // The device whose memory an address is in; kHostPlace for what the CPU reaches, managed memory included.
  // Asked by a device that is at work already.
  virtual Status place_of(std::int32_t asker, std::uint64_t address, std::int32_t* device) = 0;
  // Whether one device can be granted another's memory at all; and the grants, of plain memory and of one pool. What is
  // granted already is no failure.
  virtual bool can_reach(std::int32_t worker, std::int32_t owner) noexcept = 0;
  virtual Status peer_enable(std::int32_t worker, std::int32_t owner) = 0;
  virtual Status pool_open(PoolRef pool, std::int32_t worker) = 0;
  virtual Status copy_line(std::uint64_t to, std::uint64_t from, std::uint64_t nbytes, StreamRef stream) = 0;
  // The plane pitches are multiples of the row pitches.
  virtual Status copy_box(const Pitched& to, const Pitched& from, const CopyShape& shape, StreamRef stream) = 0;
  // Between memory of devices, by calls that name both: no device needs a grant for it.
  virtual Status copy_line_between(const Pitched& to, const Pitched& from, std::uint64_t nbytes, StreamRef stream) = 0;
  virtual Status copy_box_between(const Pitched& to, const Pitched& from, const CopyShape& shape, StreamRef stream) = 0;
  virtual Status fill(const FillRows& rows, StreamRef stream) = 0;
  // Whether rows of elements of this size are one call.
  virtual bool fills_rows(std::uint32_t element_bytes) const noexcept = 0;
  // The same 8 bytes `count` times, one behind the other.
  virtual Status fill_wide(std::uint64_t address, std::uint64_t value, std::uint64_t count, StreamRef stream) = 0;
  virtual Status launch_host(HostFunction function, void* argument, StreamRef stream) = 0;

  virtual Status granularity(std::int32_t device, Granularity* granularity) = 0;
  virtual Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) = 0;
  virtual Status release(std::uint64_t address, std::uint64_t size) = 0;
  virtual Status physical_create(std::int32_t device, std::uint64_t size, bool exportable,
                                 NativePhysical* physical) = 0;
  virtual Status physical_destroy(NativePhysical physical) = 0;
  virtual Status map(std::uint64_t address, std::uint64_t size, NativePhysical physical) = 0;
  virtual Status unmap(std::uint64_t address, std::uint64_t size) = 0;
  virtual Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) = 0;
  virtual Status physical_export(NativePhysical physical, std::int32_t* fd) = 0;
  virtual Status physical_import(std::int32_t device, std::int32_t fd, NativePhysical* physical) = 0;
};

// Whether the driver says yes; what it does not know is no.
inline bool has(GpuApi& api, std::int32_t device, DeviceAttribute attribute) noexcept {
  std::int32_t value = 0;
  return api.attribute(device, attribute, &value) && value != 0;
}

inline Status vendor_error(ErrorNumbers numbers, std::int32_t code, const char* call) noexcept {
  return Status::caused(Failure{Code::driver_error,
                                code,
                                call,
                                {static_cast<std::uint64_t>(code), static_cast<std::uint64_t>(numbers)},
                                nullptr,
                                nullptr});
}

}  // namespace tensormem::gpu

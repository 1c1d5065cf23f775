// Owns: resources as the C functions that PyTorch's pluggable allocator (and whoever has the same shape) calls: one
// resource per device, streams as the vendor's handles, freeing by bare pointer. Must not know: torch. The functions
// are exported by name; one set per process, never destroyed, because others may free until the very end.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <mutex>

#include "base/fork_guard.hpp"
#include "base/interned.hpp"
#include "resource/address_book.hpp"
#include "resource/refusals.hpp"
#include "resource/resource.hpp"

namespace tensormem {

class DeviceHooks {
 public:
  static constexpr std::int32_t kMaxDevices = 128;

  static DeviceHooks& instance();

  // From now on allocations for `device` come from `resource`; null is nowhere. Blocks that are out go back to where
  // they came from.
  Status set(std::int32_t device, ResourcePtr resource, TagId tag) noexcept;
  // Zero bytes are a null pointer, as everywhere on GPUs.
  Status allocate(ssize_t nbytes, std::int32_t device, void* stream, void** pointer) noexcept;
  Status deallocate(void* pointer, void* stream) noexcept;
  // `stream` uses the block too: its end will come after all work queued there when it is freed.
  Status record_use(void* pointer, void* stream) noexcept;

  AddressBook& book() { return book_; }
  Refusals& refusals() { return refusals_; }

 private:
  struct Source {
    ResourcePtr resource;
    TagId tag = kUntagged;
  };

  mutable std::mutex mutex_;  // guards the sources
  ForkGuard fork_guard_{mutex_};
  std::array<Source, kMaxDevices> sources_;
  AddressBook book_;
  Refusals refusals_;
};

}  // namespace tensormem

extern "C" {

// Null when it could not be done, or for zero bytes.
void* tensormem_allocate(ssize_t nbytes, int device, void* stream);
// The same for C++ callers that take null for an answer as good as any (PyTorch): throws a std::bad_alloc that says
// why.
void* tensormem_allocate_or_throw(ssize_t nbytes, int device, void* stream);
// A pointer that is not ours, and a null one, change nothing.
void tensormem_deallocate(void* pointer, ssize_t nbytes, int device, void* stream);
// Work on `stream` uses the memory: freed, it will not be handed out again before that work is done.
void tensormem_record_stream(void* pointer, void* stream);
}

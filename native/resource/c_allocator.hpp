// Owns: a resource of host memory as C's four functions: allocate, allocate zeroed, reallocate, free by bare pointer.
// For libraries that let others do their allocations (NumPy). Failure is a null pointer; `refusals` tells why.
// Must not know: whose functions these become. May be called with or without the GIL.
#pragma once

#include <cstddef>
#include <utility>

#include "base/interned.hpp"
#include "resource/address_book.hpp"
#include "resource/refusals.hpp"
#include "resource/resource.hpp"

namespace tensormem {

class CAllocator {
 public:
  // Wide enough for every vector register; a multiple of what C promises.
  static constexpr std::uint64_t kAlignment = 64;

  CAllocator(ResourcePtr resource, TagId tag) : resource_(std::move(resource)), tag_(tag) {}
  CAllocator(const CAllocator&) = delete;
  CAllocator& operator=(const CAllocator&) = delete;

  // Zero bytes are one: every answer but null is an address of its own.
  void* allocate(std::size_t nbytes) noexcept;
  void* allocate_zeroed(std::size_t count, std::size_t element_bytes) noexcept;
  // Null leaves the old memory as it was. A smaller size never fails.
  void* reallocate(void* pointer, std::size_t nbytes) noexcept;
  // Null is nothing to free. A pointer that is not ours is refused and nothing changes.
  void deallocate(void* pointer) noexcept;

  const AddressBook& book() const { return book_; }
  const Refusals& refusals() const { return refusals_; }

 private:
  Status take(std::size_t nbytes, void** pointer) noexcept;
  void* refuse(Status why) noexcept;

  const ResourcePtr resource_;
  const TagId tag_;
  AddressBook book_;
  Refusals refusals_;
};

}  // namespace tensormem

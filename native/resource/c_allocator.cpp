#include "resource/c_allocator.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/blocking.hpp"

namespace tensormem {

namespace {

// From here on, clearing or copying takes long enough for other threads to use the time.
constexpr std::size_t kSlowBytes = 1 << 20;

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

void clear(void* to, std::size_t nbytes) {
  std::optional<BlockingRegion> region;
  if (nbytes >= kSlowBytes) region.emplace();
  std::memset(to, 0, nbytes);
}

void copy(void* to, const void* from, std::size_t nbytes) {
  std::optional<BlockingRegion> region;
  if (nbytes >= kSlowBytes) region.emplace();
  std::memcpy(to, from, nbytes);
}

}  // namespace

void* CAllocator::allocate(std::size_t nbytes) noexcept {
  void* pointer = nullptr;
  if (Status taken = take(nbytes, &pointer); !taken.ok()) return refuse(std::move(taken));
  return pointer;
}

void* CAllocator::allocate_zeroed(std::size_t count, std::size_t element_bytes) noexcept {
  std::size_t nbytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &nbytes))
    return refuse(Status::fail(Code::invalid_size, "the number of elements times their size does not fit", count));
  void* pointer = allocate(nbytes);
  if (pointer != nullptr) clear(pointer, nbytes);
  return pointer;
}

void* CAllocator::reallocate(void* pointer, std::size_t nbytes) noexcept {
  if (pointer == nullptr) return allocate(nbytes);
  const std::optional<BookEntry> old = book_.find(address_of(pointer));
  if (!old)
    return refuse(Status::fail(Code::foreign_block, "no block was handed out here by this hook, or it was freed before",
                               0, address_of(pointer)));
  void* moved = nullptr;
  if (Status taken = take(nbytes, &moved); !taken.ok())
    return nbytes <= old->block.nbytes ? pointer : refuse(std::move(taken));
  copy(moved, pointer, std::min<std::size_t>(nbytes, old->block.nbytes));
  deallocate(pointer);
  return moved;
}

void CAllocator::deallocate(void* pointer) noexcept {
  if (pointer == nullptr) return;
  if (Status given = book_.deallocate(address_of(pointer), kDefaultStream); !given.ok()) refuse(std::move(given));
}

Status CAllocator::take(std::size_t nbytes, void** pointer) noexcept {
  return book_.allocate(
      resource_,
      {.nbytes = std::max<std::size_t>(nbytes, 1), .alignment = kAlignment, .stream = kDefaultStream, .tag = tag_},
      pointer);
}

void* CAllocator::refuse(Status why) noexcept {
  refusals_.add(std::move(why));
  return nullptr;
}

}  // namespace tensormem

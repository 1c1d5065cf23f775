#include "resource/kind_memory_resource.hpp"

#include "base/align.hpp"

namespace tensormem {

Status KindMemoryResource::take(const AllocRequest& request, std::uint64_t* address) {
  MemoryMaker* const maker = maker_of(request);
  if (maker == nullptr) return Status::fail(Code::not_supported, "a block of this kind by its size alone");
  std::unique_ptr<KindMemory> made;
  TM_TRY(maker->make(request, &made));
  std::uint64_t place = made->address();
  if (!is_aligned(place, request.alignment)) {
    (void)made->release().ok();
    return Status::fail(Code::invalid_alignment, "memory of this kind begins where its maker puts it",
                        request.alignment);
  }
  const std::lock_guard lock(mutex_);
  // Adopted memory may be at an address that another piece of it has: one of a ring of buffers, handed out again.
  if (place == 0 || pieces_.contains(place)) {
    place = next_handle_;
    next_handle_ += align_up(request.nbytes, kHandleStep);
  }
  pieces_.emplace(place, std::move(made));
  *address = place;
  return {};
}

bool KindMemoryResource::can_zero(const AllocRequest& request) const {
  const MemoryMaker* const maker = maker_of(request);
  return maker != nullptr && maker->makes_zeros();
}

Status KindMemoryResource::give_back(const BlockEntry& entry) {
  std::unique_ptr<KindMemory> piece;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(entry.address);
    piece = std::move(found->second);
    pieces_.erase(found);
  }
  return piece->release();
}

}  // namespace tensormem

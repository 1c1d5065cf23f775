#include "resource/callback_memory_resource.hpp"

#include "base/align.hpp"

namespace tensormem {

Status CallbackMemoryResource::take(const AllocRequest& request, std::uint64_t* address) {
  AllocRequest wanted = request;
  const bool must_align = request.alignment > alignment_;
  if (must_align) wanted.nbytes += request.alignment - alignment_;
  std::uint64_t given = 0;
  if (Status taken = callbacks_.take(wanted, &given); !taken.ok()) {
    taken.set_fact(0, request.nbytes);
    return taken;
  }
  if (given == 0) return Status::fail(Code::out_of_memory, "the callback returned 0", request.nbytes);
  std::uint64_t end = 0;
  if (!checked_add(given, wanted.nbytes, &end)) {
    TM_TRY(callbacks_.give_back(given, wanted.nbytes, request.stream));
    return Status::fail(Code::invalid_argument, "the callback's memory reaches beyond the address space");
  }
  if (!is_aligned(given, must_align ? alignment_ : request.alignment)) {
    TM_TRY(callbacks_.give_back(given, wanted.nbytes, request.stream));
    return Status::fail(Code::invalid_alignment, "the callback's address is not a multiple of what it promised",
                        alignment_);
  }
  *address = align_up(given, request.alignment);
  if (!must_align) return {};
  const std::lock_guard lock(mutex_);
  moved_[*address] = {given, wanted.nbytes};
  return {};
}

Status CallbackMemoryResource::give_back(const BlockEntry& entry) {
  Taken taken{entry.address, entry.nbytes};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = moved_.find(entry.address); found != moved_.end()) {
      taken = found->second;
      moved_.erase(found);
    }
  }
  return callbacks_.give_back(taken.address, taken.nbytes, entry.stream);
}

}  // namespace tensormem

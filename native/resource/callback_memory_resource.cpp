#include "resource/callback_memory_resource.hpp"

#include "base/align.hpp"

namespace tensormem {

Status CallbackMemoryResource::take(const AllocRequest& request, std::uint64_t* address) {
  std::uint64_t given = 0;
  TM_TRY(callbacks_.take(request, &given));
  if (given == 0) return Status::fail(Code::out_of_memory, "the callback returned 0", request.nbytes);
  if (!is_aligned(given, request.alignment)) {
    TM_TRY(callbacks_.give_back(given, request.nbytes, request.stream));
    return Status::fail(Code::invalid_alignment, "the callback's address is not aligned as asked", request.alignment);
  }
  *address = given;
  return {};
}

}  // namespace tensormem

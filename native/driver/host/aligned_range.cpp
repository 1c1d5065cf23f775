#include "driver/host/aligned_range.hpp"

#include <algorithm>
#include <cerrno>

#include "base/align.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

int reserve_aligned(std::uint64_t size, std::uint64_t wanted, std::uint64_t* address) noexcept {
  const std::uint64_t alignment = std::max(wanted, os::page_size());
  const std::uint64_t slack = alignment - os::page_size();
  std::uint64_t whole = 0;
  if (!checked_add(size, slack, &whole)) return ENOMEM;
  std::uint64_t start = 0;
  if (const int error = os::reserve(whole, &start); error != 0) return error;
  const std::uint64_t aligned = align_up(start, alignment);
  const std::uint64_t head = aligned - start;
  const std::uint64_t tail = slack - head;
  int error = head == 0 ? 0 : os::unmap(start, head);
  const std::uint64_t kept = error == 0 ? aligned : start;
  if (error == 0 && tail != 0) error = os::unmap(aligned + size, tail);
  if (error != 0) {
    (void)os::unmap(kept, start + whole - kept);
    return error;
  }
  *address = aligned;
  return 0;
}

}  // namespace tensormem::host

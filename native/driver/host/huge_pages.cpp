#include "driver/host/huge_pages.hpp"

#include <cerrno>
#include <cstdlib>

#include "base/align.hpp"
#include "driver/host/aligned_range.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

// The kernel's huge page is larger where its small page is.
bool kernel_uses_our_size() {
  char text[32];
  if (os::read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof text) != 0) return true;
  return std::strtoull(text, nullptr, 10) == kHugePageBytes;
}

const char* explain(int error) {
  switch (error) {
    case EINVAL:
      return "the kernel refuses MADV_COLLAPSE on shared memory (Linux 6.1 or newer is needed, with shmem_enabled not "
             "'deny')";
    case ENOMEM:
    case ENOSPC:
      return "no free block of 2 MiB: memory is fragmented or used up";
    case EAGAIN:
    case EBUSY:
      return "the kernel was too busy to assemble a 2 MiB page";
    case EPERM:
    case EACCES:
      return "this process may not ask for huge pages";
    default:
      return "MADV_COLLAPSE failed";
  }
}

constexpr int kBusyTries = 4;

int collapse(std::uint64_t address, std::uint64_t size) {
  int error = 0;
  for (int i = 0; i < kBusyTries; ++i) {
    error = os::advise(address, size, os::Advice::collapse);
    if (error != EAGAIN && error != EBUSY) break;
  }
  return error;
}

}  // namespace

void HugePages::turn_off() noexcept {
  reason_.store("they were turned off by the configuration", std::memory_order_release);
  answer_.store(Answer::no, std::memory_order_release);
}

bool HugePages::work() noexcept {
  Answer answer = answer_.load(std::memory_order_acquire);
  if (answer == Answer::unknown) [[unlikely]] {
    answer = try_once();
    answer_.store(answer, std::memory_order_release);
  }
  return answer == Answer::yes;
}

const char* HugePages::reason() noexcept {
  (void)work();
  return reason_.load(std::memory_order_acquire);
}

HugePages::Answer HugePages::try_once() noexcept {
  if (!kernel_uses_our_size()) {
    reason_.store("the huge pages of this kernel are not 2 MiB");
    return Answer::no;
  }
  int fd = -1;
  int error = os::create_memfd("tensormem-probe", &fd);
  if (error != 0) {
    reason_.store("memfd_create is not available");
    return error == ENOSYS ? Answer::no : Answer::unknown;
  }
  error = os::resize_file(fd, kHugePageBytes);
  if (error == 0) error = try_in_file(fd);
  (void)os::close(fd);
  reason_.store(error == 0 ? "" : explain(error));
  if (error == 0) return Answer::yes;
  // Memory may be fragmented just now; only a refusal on principle is remembered.
  return error == EINVAL || error == EPERM || error == EACCES || error == ENOSYS ? Answer::no : Answer::unknown;
}

int HugePages::try_in_file(int fd) noexcept {
  std::uint64_t window = 0;
  int error = reserve_aligned(kHugePageBytes, kHugePageBytes, &window);
  if (error != 0) return error;
  error = os::map_file_over(window, kHugePageBytes, fd, 0, os::Protection::none);
  // A collapse starts from a page that exists; making one in the file needs no touch, so nothing can fault.
  if (error == 0) error = os::allocate_range(fd, 0, os::page_size());
  if (error == 0) error = collapse(window, kHugePageBytes);
  if (os::unmap(window, kHugePageBytes) != 0) (void)os::unmap(window, kHugePageBytes);
  return error;
}

void HugePages::failed(int error) noexcept { reason_.store(explain(error), std::memory_order_release); }

bool HugePages::make(int fd, std::uint64_t offset, std::uint64_t size, std::uint64_t window) noexcept {
  const std::uint64_t begin = align_up(offset, kHugePageBytes);
  const std::uint64_t end = align_down(offset + size, kHugePageBytes);
  if (begin >= end) return false;
  int error = 0;
  for (std::uint64_t page = begin; page < end && error == 0; page += kHugePageBytes) {
    error = os::allocate_range(fd, page, os::page_size());
  }
  if (error == 0) error = collapse(window + (begin - offset), end - begin);
  reason_.store(error == 0 ? "" : explain(error), std::memory_order_release);
  return error == 0;
}

}  // namespace tensormem::host

#include "core/window.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "driver/host/aligned_range.hpp"
#include "driver/host/os.hpp"

namespace simgpu {

namespace {

using tensormem::host::os::page_size;

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

int map_fixed(std::uint64_t address, std::uint64_t size, int protection, int flags, int fd, std::uint64_t offset) {
  void* const got = mmap(pointer(address), size, protection, flags | MAP_FIXED, fd, static_cast<off_t>(offset));
  return got == MAP_FAILED ? errno : 0;
}

}  // namespace

int Window::open(std::uint64_t size, std::uint64_t alignment, bool with_memory) {
  std::uint64_t start = 0;
  std::uint64_t alias = 0;
  if (const int error = tensormem::host::reserve_aligned(size, alignment, &start); error != 0) return error;
  int error = tensormem::host::reserve_aligned(size, page_size(), &alias);
  const int file = error == 0 && with_memory ? memfd_create("tensormem-simgpu", MFD_CLOEXEC) : -1;
  if (error == 0 && with_memory) {
    if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) error = errno;
    if (error == 0) error = map_fixed(alias, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  if (error != 0) {
    if (file >= 0) ::close(file);
    munmap(pointer(start), size);
    if (alias != 0) munmap(pointer(alias), size);
    return error;
  }
  start_ = start;
  alias_ = alias;
  size_ = size;
  file_ = file;
  return 0;
}

void Window::close() {
  if (size_ == 0) return;
  munmap(pointer(start_), size_);
  munmap(pointer(alias_), size_);
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  size_ = 0;
}

void Window::discard(std::uint64_t address, std::uint64_t size) const {
  const std::uint64_t from = (alias(address) + page_size() - 1) & ~(page_size() - 1);
  const std::uint64_t to = (alias(address) + size) & ~(page_size() - 1);
  if (from < to) madvise(pointer(from), to - from, MADV_REMOVE);
}

int Window::map_file(std::uint64_t address, std::uint64_t size, int fd, std::uint64_t offset) const {
  return map_fixed(alias(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, offset);
}

int Window::unmap_file(std::uint64_t address, std::uint64_t size) const {
  return map_fixed(alias(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

}  // namespace simgpu

#include "core/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace simgpu {

namespace {

constexpr std::uint64_t kAlignment = 2ULL << 20;

}  // namespace

Arena::~Arena() {
  if (for_host_ && size_ != 0) munmap(reinterpret_cast<void*>(start_), size_);
  if (file_ >= 0) ::close(file_);
}

bool Arena::open(std::uint64_t size, bool for_host) {
  const int file = memfd_create("tensormem-simgpu-pool", MFD_CLOEXEC);
  if (file < 0) return false;
  if (ftruncate(file, static_cast<off_t>(size)) == 0 && open_file(file, size, for_host)) return true;
  ::close(file);
  return false;
}

bool Arena::open_file(int file, std::uint64_t size, bool for_host) {
  if (for_host) {
    void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (got == MAP_FAILED) return false;
    start_ = reinterpret_cast<std::uint64_t>(got);
  } else {
    if (window_.open(size, kAlignment, false) != 0) return false;
    if (window_.map_file(window_.start(), size, file, 0) != 0) return false;
    start_ = window_.start();
  }
  file_ = file;
  size_ = size;
  for_host_ = for_host;
  heap_.open(start_, size);
  return true;
}

void Arena::give_back(std::uint64_t address, std::uint64_t size) {
  heap_.give_back(address, size);
  (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(address - start_),
                  static_cast<off_t>(size));
}

}  // namespace simgpu

// The part of os.hpp about files of shared memory that other processes may hold as well.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "driver/host/os.hpp"
#include "driver/host/os_consult.hpp"

// Newer than the headers of some systems that the library is built on; the running kernel decides.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

namespace tensormem::host::os {

namespace {

// Kernels before 6.3 do not know the flag that bars a memory file from being run as a program.
std::atomic<bool> g_noexec_is_known{true};

FileKind kind_of(const struct stat& file, const struct statfs& system) {
  // The kernel's word for a file system has more bits than its numbers on some machines.
  const auto magic = static_cast<std::uint32_t>(system.f_type);
  if (magic == DMA_BUF_MAGIC) return FileKind::dma_buf;
  if (!S_ISREG(file.st_mode)) return FileKind::other;
  if (magic == TMPFS_MAGIC) return FileKind::shared_memory;
  return magic == HUGETLBFS_MAGIC ? FileKind::huge_tlb : FileKind::other;
}

}  // namespace

int create_shared_file(const char* name, bool huge_tlb, int* fd) noexcept {
  TM_CONSULT(create_memfd);
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_tlb ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
  int got = -1;
  if (g_noexec_is_known.load(std::memory_order_relaxed)) got = ::memfd_create(name, flags | MFD_NOEXEC_SEAL);
  if (got < 0 && (errno == EINVAL || !g_noexec_is_known.load(std::memory_order_relaxed))) {
    got = ::memfd_create(name, flags);
    if (got >= 0) g_noexec_is_known.store(false, std::memory_order_relaxed);
  }
  if (got < 0) return errno;
  *fd = got;
  return 0;
}

int create_nameless_file(int* fd) noexcept {
  TM_CONSULT(read_file);
  const int got = ::open("/dev/shm", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (got < 0) return errno;
  *fd = got;
  return 0;
}

int describe_shared_file(int fd, SharedFileFacts* facts) noexcept {
  TM_CONSULT(describe);
  struct stat file = {};
  struct statfs system = {};
  if (::fstat(fd, &file) != 0 || ::fstatfs(fd, &system) != 0) return errno;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return errno;
  SharedFileFacts found;
  found.kind = kind_of(file, system);
  found.device = file.st_dev;
  found.inode = file.st_ino;
  found.size = static_cast<std::uint64_t>(file.st_size);
  found.granularity = found.kind == FileKind::huge_tlb ? static_cast<std::uint64_t>(system.f_bsize) : page_size();
  found.readable = (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_WRONLY;
  found.writable = (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals > 0) {
    found.shrink_sealed = (seals & F_SEAL_SHRINK) != 0;
    found.write_sealed = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  }
  *facts = found;
  return 0;
}

int add_seals(int fd, Seals seals) noexcept {
  TM_CONSULT(file_control);
  int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals == Seals::size_and_writes) wanted |= F_SEAL_FUTURE_WRITE;
  if (seals == Seals::size_for_good) wanted |= F_SEAL_SEAL;
  return result(::fcntl(fd, F_ADD_SEALS, wanted));
}

int map_shared_file(int fd, std::uint64_t size, Protection protection, std::uint64_t* address) noexcept {
  TM_CONSULT(map);
  const int access = protection == Protection::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const got = ::mmap(nullptr, size, access, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) return errno;
  *address = reinterpret_cast<std::uint64_t>(got);
  return 0;
}

int reopen_to_read(int fd, int* fresh) noexcept {
  TM_CONSULT(read_file);
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int got = ::open(path, O_RDONLY | O_CLOEXEC);
  if (got < 0) return errno;
  *fresh = got;
  return 0;
}

}  // namespace tensormem::host::os

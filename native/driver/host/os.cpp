#include "driver/host/os.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
#include <thread>

#include "base/align.hpp"
#include "base/fork_guard.hpp"
#include "driver/host/os_consult.hpp"

// Newer than the headers of some systems that the library is built on; the running kernel decides.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace tensormem::host::os {

namespace {

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

constexpr int kReservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

int flag_of(Protection protection) {
  switch (protection) {
    case Protection::none:
      return PROT_NONE;
    case Protection::read:
      return PROT_READ;
    case Protection::read_write:
      return PROT_READ | PROT_WRITE;
  }
  return PROT_NONE;
}

int flag_of(Advice advice) {
  switch (advice) {
    case Advice::will_need:
      return MADV_WILLNEED;
    case Advice::populate_write:
      return MADV_POPULATE_WRITE;
    case Advice::huge_pages:
      return MADV_HUGEPAGE;
    case Advice::collapse:
      return MADV_COLLAPSE;
    case Advice::not_in_children:
      return MADV_DONTFORK;
  }
  return MADV_NORMAL;
}

int retry_fallocate(int fd, int mode, std::uint64_t offset, std::uint64_t size) {
  int error = 0;
  do {
    error = result(::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(size)));
  } while (error == EINTR);
  return error;
}

struct flock byte_lock(short kind, std::uint64_t at) {
  struct flock lock = {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = 1;
  return lock;
}

// A large block that is copied to another whose place in its page is a little further on is copied three times slower
// than to any other: a processor compares the low bits of loads and stores alone. Other heaps begin their large blocks
// at the beginning of a page, so ours begin in the middle of one.
constexpr std::uint64_t kMidPage = 2 << 10;
constexpr std::uint64_t kMidPageBytes = 1 << 20;

}  // namespace

int reserve(std::uint64_t size, std::uint64_t* address) noexcept {
  TM_CONSULT(map);
  void* const got = ::mmap(nullptr, size, PROT_NONE, kReservation, -1, 0);
  if (got == MAP_FAILED) return errno;
  *address = reinterpret_cast<std::uint64_t>(got);
  return 0;
}

int reserve_over(std::uint64_t address, std::uint64_t size) noexcept {
  TM_CONSULT(map);
  return ::mmap(pointer(address), size, PROT_NONE, kReservation | MAP_FIXED, -1, 0) == MAP_FAILED ? errno : 0;
}

int map_file_over(std::uint64_t address, std::uint64_t size, int fd, std::uint64_t offset,
                  Protection protection) noexcept {
  TM_CONSULT(map);
  const auto at = static_cast<off_t>(offset);
  void* const got = ::mmap(pointer(address), size, flag_of(protection), MAP_SHARED | MAP_FIXED, fd, at);
  return got == MAP_FAILED ? errno : 0;
}

int unmap(std::uint64_t address, std::uint64_t size) noexcept {
  TM_CONSULT(unmap);
  return result(::munmap(pointer(address), size));
}

int protect(std::uint64_t address, std::uint64_t size, Protection protection) noexcept {
  TM_CONSULT(protect);
  return result(::mprotect(pointer(address), size, flag_of(protection)));
}

int advise(std::uint64_t address, std::uint64_t size, Advice advice) noexcept {
  TM_CONSULT(advise);
  return result(::madvise(pointer(address), size, flag_of(advice)));
}

// By number, because sanitizers replace the C library's functions with ones that do nothing.
int lock_pages(std::uint64_t address, std::uint64_t size) noexcept {
  TM_CONSULT(lock_pages);
  return result(static_cast<int>(::syscall(SYS_mlock, address, size)));
}

int unlock_pages(std::uint64_t address, std::uint64_t size) noexcept {
  TM_CONSULT(unlock_pages);
  return result(static_cast<int>(::syscall(SYS_munlock, address, size)));
}

// By number, because the wrapper lives in libnuma and the core links nothing beyond the C library.
int bind_to_node(std::uint64_t address, std::uint64_t size, std::uint32_t node) noexcept {
  TM_CONSULT(bind_node);
  constexpr std::uint32_t kBits = 8 * sizeof(unsigned long);
  unsigned long mask[16] = {};
  if (node >= kBits * std::size(mask)) return EINVAL;
  mask[node / kBits] = 1UL << (node % kBits);
  // The kernel counts one bit more than it reads.
  const unsigned long bits = kBits * std::size(mask) + 1;
  return ::syscall(SYS_mbind, address, size, MPOL_BIND, mask, bits, 0UL) == 0 ? 0 : errno;
}

int create_memfd(const char* name, int* fd) noexcept {
  TM_CONSULT(create_memfd);
  const int got = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (got < 0) return errno;
  *fd = got;
  return 0;
}

int resize_file(int fd, std::uint64_t size) noexcept {
  TM_CONSULT(resize);
  return result(::ftruncate(fd, static_cast<off_t>(size)));
}

int allocate_range(int fd, std::uint64_t offset, std::uint64_t size) noexcept {
  TM_CONSULT(allocate_range);
  return retry_fallocate(fd, 0, offset, size);
}

int punch_hole(int fd, std::uint64_t offset, std::uint64_t size) noexcept {
  TM_CONSULT(allocate_range);
  return retry_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size);
}

int seal_size(int fd) noexcept {
  TM_CONSULT(file_control);
  return result(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

int find_pages(int fd, std::uint64_t offset, std::uint64_t* begin, std::uint64_t* end) noexcept {
  TM_CONSULT(describe);
  off_t data = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0 && errno == ENXIO) data = ::lseek(fd, 0, SEEK_END);
  const off_t hole = data < 0 ? data : ::lseek(fd, data, SEEK_HOLE);
  if (hole < 0 && errno != ENXIO) return errno;
  *begin = static_cast<std::uint64_t>(data);
  *end = static_cast<std::uint64_t>(hole < 0 ? data : hole);
  return 0;
}

int describe_file(int fd, FileFacts* facts) noexcept {
  TM_CONSULT(describe);
  struct stat file = {};
  struct statfs system = {};
  if (::fstat(fd, &file) != 0 || ::fstatfs(fd, &system) != 0) return errno;
  FileFacts found;
  found.memory_file = S_ISREG(file.st_mode) && system.f_type == TMPFS_MAGIC;
  found.size = static_cast<std::uint64_t>(file.st_size);
  found.committed_bytes = static_cast<std::uint64_t>(file.st_blocks) * 512;
  const int seals = found.memory_file ? ::fcntl(fd, F_GET_SEALS) : 0;
  found.shrink_sealed = seals > 0 && (seals & F_SEAL_SHRINK) != 0;
  found.grow_sealed = seals > 0 && (seals & F_SEAL_GROW) != 0;
  *facts = found;
  return 0;
}

int duplicate(int fd, int* copy) noexcept {
  TM_CONSULT(file_control);
  const int got = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (got < 0) return errno;
  *copy = got;
  return 0;
}

int close(int fd) noexcept {
  const int planned = fault_plan::consult(SystemCall::close);
  const int real = result(::close(fd));
  return planned != 0 ? planned : real;
}

int reopen(int fd, int* fresh) noexcept {
  TM_CONSULT(read_file);
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int got = ::open(path, O_RDWR | O_CLOEXEC);
  if (got < 0) return errno;
  *fresh = got;
  return 0;
}

int restrict_to_owner(int fd) noexcept {
  TM_CONSULT(file_control);
  return result(::fchmod(fd, S_IRUSR | S_IWUSR));
}

int map_shared(int fd, std::uint64_t size, std::uint64_t* address) noexcept {
  TM_CONSULT(map);
  void* const got = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) return errno;
  *address = reinterpret_cast<std::uint64_t>(got);
  return 0;
}

int lock_byte(int fd, std::uint64_t at) noexcept {
  TM_CONSULT(file_control);
  struct flock lock = byte_lock(F_WRLCK, at);
  const int error = result(::fcntl(fd, F_OFD_SETLK, &lock));
  return error == EACCES ? EAGAIN : error;
}

int unlock_byte(int fd, std::uint64_t at) noexcept {
  struct flock lock = byte_lock(F_UNLCK, at);
  return result(::fcntl(fd, F_OFD_SETLK, &lock));
}

int look_at_byte(int fd, std::uint64_t at, bool* locked) noexcept {
  TM_CONSULT(file_control);
  struct flock lock = byte_lock(F_WRLCK, at);
  const int error = result(::fcntl(fd, F_OFD_GETLK, &lock));
  if (error == 0) *locked = lock.l_type != F_UNLCK;
  return error;
}

// Not the private kind of futex: the other side has another address space.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds) noexcept {
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_waiters(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int wait_for_descriptors(pollfd* watched, std::uint32_t count, std::uint64_t nanoseconds, bool* ready) noexcept {
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
  const int found = ::ppoll(watched, count, &time, nullptr);
  if (found < 0 && errno != EINTR) return errno;
  *ready = found > 0;
  return 0;
}

int start_thread(pthread_t* thread, void* (*body)(void*), void* argument) noexcept {
  TM_CONSULT(create_thread);
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t started = {};
  const int error = pthread_create(&started, nullptr, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return error;
  *thread = started;
  return 0;
}

// By itself, because naming another thread goes through a file.
void name_this_thread(const char* name) noexcept { pthread_setname_np(pthread_self(), name); }

void join_thread(pthread_t thread) noexcept { pthread_join(thread, nullptr); }

// The C library's aligned allocation takes several times as long as its plain one, so the block is placed in a plain
// one and the address of that kept in front of it.
int heap_allocate(std::uint64_t nbytes, std::uint64_t alignment, bool zeroed, std::uint64_t* address) noexcept {
  TM_CONSULT(heap);
  const bool placed = alignment > alignof(std::max_align_t);
  const bool mid_page = placed && nbytes >= kMidPageBytes && alignment <= kMidPage;
  std::uint64_t whole = nbytes;
  if (placed && !checked_add(nbytes, mid_page ? 2 * kMidPage : alignment, &whole)) return ENOMEM;
  void* const got = zeroed ? std::calloc(1, whole) : std::malloc(whole);
  if (got == nullptr) return ENOMEM;
  *address = reinterpret_cast<std::uint64_t>(got);
  if (!placed) return 0;
  // At least alignof(max_align_t) above the beginning, because both are multiples of it.
  *address =
      mid_page ? align_down(*address + kMidPage, 2 * kMidPage) + kMidPage : align_down(*address + alignment, alignment);
  static_cast<void**>(pointer(*address))[-1] = got;
  return 0;
}

void heap_free(std::uint64_t address, std::uint64_t alignment) noexcept {
  const bool placed = alignment > alignof(std::max_align_t);
  std::free(placed ? static_cast<void**>(pointer(address))[-1] : pointer(address));
}

int read_text(const char* path, char* buffer, std::size_t capacity) noexcept {
  TM_CONSULT(read_file);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  std::size_t length = 0;
  int error = 0;
  while (length + 1 < capacity) {
    const ssize_t got = ::read(fd, buffer + length, capacity - 1 - length);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error = errno;
      break;
    }
    length += static_cast<std::size_t>(got);
  }
  buffer[length] = '\0';
  ::close(fd);
  return error;
}

int count_lines(const char* path, std::uint64_t* lines) noexcept {
  TM_CONSULT(read_file);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  char buffer[16384];
  std::uint64_t found = 0;
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) found += static_cast<std::uint64_t>(std::count(buffer, buffer + got, '\n'));
  }
  const int error = got < 0 ? errno : 0;
  ::close(fd);
  if (error == 0) *lines = found;
  return error;
}

std::uint64_t page_size() noexcept {
  static const auto size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::uint64_t monotonic_nanoseconds() noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

unsigned processor_count() noexcept { return std::max(1U, std::thread::hardware_concurrency()); }

// As one of the guarded locks, so that a fork takes it in its place: after those that are held while the driver is
// called, before those that the driver takes itself. Handlers of their own would run before all or behind all of them,
// depending on who came first, and wait for somebody who waits for them.
int register_fork_handlers(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  struct Handlers {
    void (*prepare)();
    void (*parent)();
    void (*child)();
    pid_t process = 0;
    void lock() {
      process = ::getpid();
      prepare();
    }
    void unlock() { ::getpid() == process ? parent() : child(); }
  };
  // Never destroyed: a process may fork while it exits.
  auto* const handlers = new (std::nothrow) Handlers{prepare, parent, child};
  if (handlers == nullptr || new (std::nothrow) ForkGuard(*handlers) == nullptr) return ENOMEM;
  return 0;
}

}  // namespace tensormem::host::os

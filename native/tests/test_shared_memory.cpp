// Shared memory: what is attached is what was created, nobody can shrink or write what they must not, nothing leaks.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "driver/host/fault_plan.hpp"
#include "driver/host/os.hpp"
#include "driver/host/shared_memory.hpp"
#include "driver/host/spare_files.hpp"
#include "tests/check.hpp"

namespace tensormem {
namespace {

const std::uint64_t kPage = host::os::page_size();

std::byte* bytes(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

// What files without a tag are called.
const std::uint64_t kPlainName = std::hash<std::string_view>{}(SharedMemoryOptions{}.name);

int open_descriptors() {
  host::drop_spare_files();
  int found = 0;
  for (int fd = 0; fd < 256; ++fd) found += fcntl(fd, F_GETFD) >= 0;
  return found;
}

int share(SharedMemory& memory, bool readonly) {
  int fd = -1;
  TM_CHECK(memory.duplicate(readonly, false, &fd).ok());
  return fd;
}

TM_TEST("what is attached is the same memory, and every descriptor says so") {
  SharedMemory mine;
  TM_CHECK(mine.create(10'000, {}).ok() && mine.is_valid() && mine.sealed() && !mine.readonly());
  std::memset(bytes(mine.address()), 7, 10'000);
  const int fd = share(mine, false);
  SharedMemory other;
  TM_CHECK(other.attach(fd, {}).ok() && other.nbytes() == 10'000 && other.is_valid());
  TM_CHECK(other.address() != mine.address() && bytes(other.address())[9'999] == std::byte{7});
  bytes(other.address())[0] = std::byte{8};
  TM_CHECK(bytes(mine.address())[0] == std::byte{8});
  std::uint64_t device[2] = {};
  std::uint64_t inode[2] = {};
  TM_CHECK(mine.identify(&device[0], &inode[0]).ok() && other.identify(&device[1], &inode[1]).ok());
  TM_CHECK(device[0] == device[1] && inode[0] == inode[1]);
  close(fd);
}

TM_TEST("it cannot be made shorter or longer, and takes no more seals once it is shared") {
  SharedMemory memory;
  TM_CHECK(memory.create(kPage, {}).ok());
  const int fd = share(memory, false);
  TM_CHECK(ftruncate(memory.fd(), 0) != 0 && ftruncate(memory.fd(), 8192) != 0);
  TM_CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
  close(fd);
}

TM_TEST("what may only be read is attached to read alone, and its mapping stays so") {
  SharedMemory mine;
  TM_CHECK(mine.create(kPage, {}).ok());
  const int fd = share(mine, true);
  TM_CHECK(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  SharedMemory other;
  TM_CHECK(other.attach(fd, {}).code() == Code::invalid_argument && !other.is_open());
  TM_CHECK(other.attach(fd, {.readonly = true}).ok() && other.readonly());
  TM_CHECK(mprotect(bytes(other.address()), kPage, PROT_READ | PROT_WRITE) != 0);
  close(fd);
}

TM_TEST("sealed against writers, only the first mapping writes") {
  SharedMemory mine;
  TM_CHECK(mine.create(kPage, {.readers_only = true}).ok());
  bytes(mine.address())[1] = std::byte{5};
  TM_CHECK(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, mine.fd(), 0) == MAP_FAILED);
  SharedMemory other;
  TM_CHECK(other.attach(mine.fd(), {}).code() == Code::invalid_argument);
  TM_CHECK(other.attach(mine.fd(), {.readonly = true}).ok() && bytes(other.address())[1] == std::byte{5});
}

TM_TEST("what can shrink, is too small or is no memory is refused and nothing is kept") {
  const int before = open_descriptors();
  const int unsealed = memfd_create("theirs", MFD_ALLOW_SEALING);
  TM_CHECK(ftruncate(unsealed, 100) == 0);
  SharedMemory memory;
  TM_CHECK(memory.attach(unsealed, {}).code() == Code::invalid_argument);
  TM_CHECK(memory.attach(unsealed, {.nbytes = 101, .trusted = true}).code() == Code::invalid_offset);
  TM_CHECK(memory.attach(unsealed, {.trusted = true}).ok() && ftruncate(unsealed, 0) != 0);
  memory.release();
  close(unsealed);
  int ends[2];
  TM_CHECK(pipe(ends) == 0 && memory.attach(ends[0], {}).code() == Code::invalid_argument);
  close(ends[0]);
  close(ends[1]);
  TM_CHECK(memory.attach(ends[0], {}).code() == Code::driver_error);
  TM_CHECK(memory.create(0, {}).code() == Code::invalid_size);
  TM_CHECK(memory.create(~0ULL, {}).code() == Code::invalid_size && memory.is_valid());
  TM_CHECK(open_descriptors() == before);
}

TM_TEST("threads that ask first for the mapping to read get one and the same") {
  for (int round = 0; round < 50; ++round) {
    SharedMemory memory;
    TM_CHECK(memory.create(kPage, {}).ok());
    std::atomic<std::uint64_t> seen{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        std::uint64_t address = 0;
        std::uint64_t first = 0;
        TM_CHECK(memory.reading_address(&address).ok());
        TM_CHECK(seen.compare_exchange_strong(first, address) || first == address);
      });
    }
    for (std::thread& thread : threads) thread.join();
    TM_CHECK(seen.load() != memory.address());
  }
}

TM_TEST("what nobody else saw becomes the next memory of its size, empty") {
  host::drop_spare_files();
  SharedMemory first;
  TM_CHECK(first.create(10'000, {}).ok());
  const int fd = first.fd();
  const std::uint64_t address = first.address();
  std::memset(bytes(address), 7, 10'000);
  first.release();
  TM_CHECK(!first.is_open() && first.is_valid());
  SharedMemory other;
  TM_CHECK(other.create(20'000, {}).ok() && other.address() != address);
  SharedMemory next;
  TM_CHECK(next.create(9'000, {}).ok() && next.fd() == fd && next.address() == address && next.nbytes() == 9'000);
  for (std::uint64_t i = 0; i < next.nbytes(); ++i) TM_CHECK(bytes(address)[i] == std::byte{0});
  struct stat file = {};
  TM_CHECK(fstat(fd, &file) == 0 && file.st_size == 9'000);
}

TM_TEST("what is kept has its pages, and a sparse one gets no more of them when it is cleared") {
  host::drop_spare_files();
  constexpr std::uint64_t size = 8 << 20;
  std::uint64_t address = 0;
  {
    SharedMemory sparse;
    TM_CHECK(sparse.create(size, {}).ok());
    address = sparse.address();
    std::memset(bytes(address) + kPage, 7, 5000);
    bytes(address)[size - 1] = std::byte{7};
  }
  TM_CHECK(host::spare_file_bytes() > 0 && host::spare_file_bytes() < size);
  const std::uint64_t kept = host::spare_file_bytes();
  {
    SharedMemory next;
    TM_CHECK(next.create(size, {}).ok() && next.address() == address && host::spare_file_bytes() == 0);
    struct stat file = {};
    TM_CHECK(fstat(next.fd(), &file) == 0 && static_cast<std::uint64_t>(file.st_blocks) * 512 == kept);
    for (std::uint64_t i = 0; i < size; ++i) TM_CHECK(bytes(address)[i] == std::byte{0});
  }
  TM_CHECK(host::spare_file_bytes() > kept);
  const std::uint64_t all = host::spare_file_bytes();
  TM_CHECK(host::drop_spare_files() == all && host::spare_file_bytes() == 0);
}

TM_TEST("the last sixteen of what nobody else saw are kept, each for its size") {
  host::drop_spare_files();
  for (std::uint64_t pages = 1; pages <= host::kMaxSpareFiles + 4; ++pages) {
    SharedMemory memory;
    TM_CHECK(memory.create(pages * kPage, {}).ok());
    std::memset(bytes(memory.address()), 7, pages * kPage);
  }
  const auto is_kept = [](std::uint64_t pages) {
    host::SpareFile spare;
    if (!host::take_spare_file(pages * kPage, kPlainName, &spare)) return false;
    munmap(bytes(spare.address), pages * kPage);
    close(spare.fd);
    return spare.mapped_bytes == pages * kPage;
  };
  for (std::uint64_t pages = 1; pages <= 4; ++pages) TM_CHECK(!is_kept(pages));
  for (std::uint64_t pages = 5; pages <= host::kMaxSpareFiles + 4; pages += 2) TM_CHECK(is_kept(pages));
  for (std::uint64_t pages = 6; pages <= host::kMaxSpareFiles + 4; pages += 2) TM_CHECK(is_kept(pages));
  TM_CHECK(!is_kept(7));
}

TM_TEST("what was shared, identified, fresh or sealed against writers is never another memory") {
  const auto is_kept = [](const SharedMemoryOptions& options, auto use) {
    host::drop_spare_files();
    SharedMemory memory;
    TM_CHECK(memory.create(kPage, options).ok());
    use(memory);
    memory.release();
    host::SpareFile spare;
    if (!host::take_spare_file(kPage, kPlainName, &spare)) return false;
    munmap(bytes(spare.address), kPage);
    close(spare.fd);
    return true;
  };
  const auto leave = [](SharedMemory&) {};
  TM_CHECK(is_kept({}, leave));
  TM_CHECK(!is_kept({.fresh = true}, leave) && !is_kept({.readers_only = true}, leave));
  TM_CHECK(!is_kept({}, [](SharedMemory& memory) { close(share(memory, false)); }));
  TM_CHECK(!is_kept({}, [](SharedMemory& memory) {
    std::uint64_t file[2];
    TM_CHECK(memory.identify(&file[0], &file[1]).ok());
  }));
}

TM_TEST("what was made with a name is kept for the next of that name") {
  host::drop_spare_files();
  const auto address_of_one = [](const char* name) {
    SharedMemory memory;
    TM_CHECK(memory.create(kPage, {.name = name}).ok());
    return memory.address();
  };
  const std::uint64_t frames = address_of_one("frames");
  TM_CHECK(address_of_one("weights") != frames && address_of_one("frames") == frames);
}

TM_TEST("memory that a child got by a fork stays as it is when the parent lets go") {
  host::drop_spare_files();
  SharedMemory memory;
  SharedMemory spare;
  TM_CHECK(memory.create(kPage, {}).ok() && spare.create(2 * kPage, {}).ok());
  bytes(memory.address())[0] = std::byte{9};
  spare.release();
  int ends[2];
  TM_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char go = 0;
    SharedMemory own;
    const bool fine = read(ends[0], &go, 1) == 1 && bytes(memory.address())[0] == std::byte{9} &&
                      own.create(8192, {}).ok() && bytes(own.address())[0] == std::byte{0};
    _exit(fine ? 0 : 1);
  }
  memory.release();
  SharedMemory next;  // not the spare, which the child has too
  TM_CHECK(next.create(8192, {}).ok());
  std::memset(bytes(next.address()), 5, 8192);
  TM_CHECK(write(ends[1], "x", 1) == 1);
  int status = -1;
  TM_CHECK(waitpid(child, &status, 0) == child && status == 0);
  close(ends[0]);
  close(ends[1]);
}

TM_TEST("threads that make and let go at once never have the same memory") {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 500; ++round) {
        SharedMemory memory;
        TM_CHECK(memory.create(kPage, {}).ok() && bytes(memory.address())[0] == std::byte{0});
        bytes(memory.address())[0] = static_cast<std::byte>(i + 1);
        TM_CHECK(bytes(memory.address())[0] == static_cast<std::byte>(i + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TM_TEST("whichever system call fails, nothing is left open or mapped") {
  const int before = open_descriptors();
  for (std::uint64_t nth = 1;; ++nth) {
    host::fault_plan::arm(host::SystemCall::any, nth, EMFILE);
    {
      SharedMemory memory;
      SharedMemory other;
      int fd = -1;
      if (memory.create(5000, {}).ok() && memory.duplicate(true, false, &fd).ok()) {
        (void)other.attach(fd, {.readonly = true}).ok();
      }
      if (fd >= 0) close(fd);
      TM_CHECK(memory.is_valid() && other.is_valid());
    }
    const bool fired = host::fault_plan::has_fired();
    host::fault_plan::disarm();
    TM_CHECK(open_descriptors() == before);
    if (!fired) break;
  }
}

}  // namespace
}  // namespace tensormem

// Plain, pinned and stream-ordered memory of the host driver, and what it says about the machine.
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/align.hpp"
#include "driver/host/memory_gauge.hpp"
#include "driver/host/os.hpp"
#include "tests/check.hpp"
#include "tests/host_process.hpp"

namespace tensormem {
namespace {

const std::uint64_t kPage = host::os::page_size();
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

char* bytes_at(std::uint64_t address) { return reinterpret_cast<char*>(address); }

std::uint64_t status_bytes(const char* key) {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[256];
  std::uint64_t kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) host::find_number(line, key, &kilobytes);
  std::fclose(file);
  return kilobytes * kKiB;
}

std::uint64_t locked_bytes() { return status_bytes("VmLck:"); }

bool is_mapped(std::uint64_t address) {
  unsigned char resident = 0;
  return mincore(bytes_at(align_down(address, kPage)), 1, &resident) == 0;
}

bool all_zero(std::uint64_t address, std::uint64_t nbytes) {
  for (std::uint64_t i = 0; i < nbytes; ++i) {
    if (bytes_at(address)[i] != 0) return false;
  }
  return true;
}

std::vector<AllocationOptions> every_kind_of_options() {
  std::vector<AllocationOptions> all;
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pinned}) {
    for (const std::uint64_t alignment : {std::uint64_t{1}, std::uint64_t{256}, 64 * kKiB, kMiB, 8 * kMiB}) {
      for (const std::int32_t node : {-1, 0}) {
        for (const bool huge : {false, true}) {
          for (const bool zeroed : {false, true}) all.push_back({kind, alignment, node, huge, zeroed});
        }
      }
    }
  }
  return all;
}

TM_TEST("every combination of options gives aligned, writable, zeroed-when-asked memory and takes it back") {
  const std::uint64_t locked = locked_bytes();
  for (const AllocationOptions& options : every_kind_of_options()) {
    for (const std::uint64_t nbytes : {std::uint64_t{1}, std::uint64_t{1000}, 300 * kKiB, 3 * kMiB}) {
      std::uint64_t address = 0;
      TM_CHECK(host_driver().allocate(0, nbytes, options, &address).ok());
      TM_CHECK(is_aligned(address, options.alignment));
      if (options.zeroed) TM_CHECK(all_zero(address, nbytes));
      std::memset(bytes_at(address), 0xff, nbytes);
      TM_CHECK(host_driver().deallocate(0, address, nbytes, options).ok());
    }
  }
  TM_CHECK(test::holds_nothing() && locked_bytes() == locked && host_driver().is_valid());
}

TM_TEST("alignments go up to a gigabyte and keep no more addresses than the block needs") {
  const test::ProcessState before = test::ProcessState::now();
  for (const std::uint64_t alignment : {4 * kMiB, 64 * kMiB, kGiB}) {
    const AllocationOptions options{MemoryKind::device, alignment, -1, false, false};
    std::uint64_t address = 0;
    TM_CHECK(host_driver().allocate(0, 5000, options, &address).ok());
    TM_CHECK(is_aligned(address, alignment));
    TM_CHECK(before.is_restored());
    bytes_at(address)[4999] = 1;
    TM_CHECK(host_driver().deallocate(0, address, 5000, options).ok());
  }
}

TM_TEST("large blocks of the heap begin in the middle of a page, unless they are aligned to more") {
  for (const std::uint64_t alignment : {64ULL, 256ULL, 2048ULL, 4096ULL}) {
    const AllocationOptions options{MemoryKind::device, alignment, -1, false, false};
    for (const std::uint64_t nbytes : {kMiB, 3 * kMiB + 7, 40 * kMiB}) {
      std::uint64_t address = 0;
      TM_CHECK(host_driver().allocate(0, nbytes, options, &address).ok());
      TM_CHECK(is_aligned(address, alignment));
      if (alignment <= 2048) TM_CHECK(address % 4096 == 2048);
      std::memset(bytes_at(address), 1, nbytes);
      TM_CHECK(host_driver().deallocate(0, address, nbytes, options).ok());
    }
  }
}

// Of the mapping that this address is in.
struct HugePagesOf {
  explicit HugePagesOf(std::uint64_t address) {
    std::FILE* const smaps = std::fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false;
    while (std::fgets(line, sizeof line, smaps) != nullptr) {
      unsigned long begin = 0;
      unsigned long end = 0;
      if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2) inside = begin <= address && address < end;
      if (!inside) continue;
      host::find_number(line, "AnonHugePages:", &kilobytes);
      if (std::strncmp(line, "VmFlags:", 8) == 0) wished_for = std::strstr(line, " hg") != nullptr;
    }
    std::fclose(smaps);
  }

  std::uint64_t kilobytes = 0;
  bool wished_for = false;
};

TM_TEST("large blocks get huge pages where the system grants them, wherever they come from") {
  char policy[128] = {};
  std::FILE* const file = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  const bool readable = file != nullptr && std::fgets(policy, sizeof policy, file) != nullptr;
  if (file != nullptr) std::fclose(file);
  const bool granted = readable && std::strstr(policy, "[never]") == nullptr;
  for (const auto& [wished, zeroed] : {std::pair{true, false}, {false, false}, {false, true}}) {
    const AllocationOptions options{MemoryKind::device, 256, -1, wished, zeroed};
    std::uint64_t address = 0;
    TM_CHECK(host_driver().allocate(0, 40 * kMiB, options, &address).ok());
    TM_CHECK(is_aligned(address, wished ? 2 * kMiB : 256));
    std::memset(bytes_at(address), 1, 40 * kMiB);
    const HugePagesOf pages(address + 8 * kMiB);
    const bool touched_before = !wished && !zeroed;  // by a heap that fills what it hands out, as it may in tests
    if (readable) TM_CHECK(pages.wished_for);
    if (granted && !touched_before) TM_CHECK(pages.kilobytes >= 32 * kKiB);
    TM_CHECK(host_driver().deallocate(0, address, 40 * kMiB, options).ok());
  }
}

TM_TEST("bad sizes, alignments, devices, nodes and kinds are refused and change nothing") {
  HostDriver& driver = host_driver();
  std::uint64_t address = 42;
  const auto code_of = [&](std::uint64_t nbytes, const AllocationOptions& options, std::int32_t device = 0) {
    return driver.allocate(device, nbytes, options, &address).code();
  };
  TM_CHECK(code_of(0, {}) == Code::invalid_size);
  TM_CHECK(code_of(~0ULL, {}) == Code::invalid_size);
  TM_CHECK(code_of(1ULL << 63, {}) == Code::invalid_size);
  for (const std::uint64_t alignment : {0ULL, 3ULL, 48ULL, 1ULL << 41, ~0ULL}) {
    const Status refused = driver.allocate(0, 64, {MemoryKind::device, alignment, -1, false, false}, &address);
    TM_CHECK(refused.code() == Code::invalid_alignment && refused.failure().facts[0] == alignment);
  }
  TM_CHECK(code_of(64, {}, 1) == Code::invalid_argument);
  TM_CHECK(code_of(64, {}, -1) == Code::invalid_argument);
  for (const std::int32_t node : {-2, 999, 1 << 20}) {
    TM_CHECK(code_of(64, {MemoryKind::device, 256, node, false, false}) == Code::invalid_argument);
  }
  TM_CHECK(code_of(64, {MemoryKind::managed, 256, -1, false, false}) == Code::not_supported);
  TM_CHECK(address == 42 && test::holds_nothing());
}

TM_TEST("more than the machine has is out of memory, with the free bytes told") {
  for (const bool own_pages : {false, true}) {
    for (const std::uint64_t nbytes : {1ULL << 50, 1ULL << 46, 1ULL << 62}) {
      std::uint64_t address = 42;
      const AllocationOptions options{MemoryKind::device, own_pages ? 4 * kMiB : 256, -1, false, false};
      const Status refused = host_driver().allocate(0, nbytes, options, &address);
      TM_CHECK(refused.code() == Code::out_of_memory && address == 42);
      TM_CHECK(refused.failure().facts[0] == nbytes && refused.failure().facts[1] > 0);
    }
  }
}

TM_TEST("giving back what was not handed out is refused where it can be known") {
  HostDriver& driver = host_driver();
  const AllocationOptions pages{MemoryKind::device, kMiB, -1, false, false};
  std::uint64_t address = 0;
  TM_CHECK(driver.allocate(0, 5000, pages, &address).ok());
  TM_CHECK(driver.deallocate(0, 0, 5000, pages).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate(0, address, 6000, pages).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate(0, address + kMiB, 5000, pages).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate(0, address + 1, 5000, pages).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate(0, address, 5000, {}).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate(1, address, 5000, pages).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate_async(0, address, 5000, kDefaultStream).code() == Code::invalid_argument);
  bytes_at(address)[4999] = 1;
  TM_CHECK(driver.deallocate(0, address, 5000, pages).ok());
  TM_CHECK(driver.deallocate(0, address, 5000, pages).code() == Code::invalid_argument);
}

// --- Pinning -----------------------------------------------------------------------------------------------------

TM_TEST("pins of overlapping pages do not undo each other") {
  HostDriver& driver = host_driver();
  const AllocationOptions pages{MemoryKind::device, kMiB, -1, false, false};
  std::uint64_t base = 0;
  TM_CHECK(driver.allocate(0, 16 * kPage, pages, &base).ok());
  const std::uint64_t before = locked_bytes();
  TM_CHECK(driver.pin(base + 100, 2 * kPage - 200).ok());  // pages 0 and 1
  TM_CHECK(driver.pin(base + kPage, 3 * kPage).ok());      // pages 1 to 3
  TM_CHECK(driver.pin(base + kPage, 3 * kPage).ok());      // again
  TM_CHECK(locked_bytes() == before + 4 * kPage && driver.counters().pins == 3);
  TM_CHECK(driver.unpin(base + kPage, 3 * kPage).ok());
  TM_CHECK(locked_bytes() == before + 4 * kPage);
  TM_CHECK(driver.unpin(base + 100, 2 * kPage - 200).ok());  // page 1 is still wanted
  TM_CHECK(locked_bytes() == before + 3 * kPage);
  TM_CHECK(driver.is_valid());
  TM_CHECK(driver.unpin(base + 100, 2 * kPage - 200).code() == Code::invalid_argument);
  TM_CHECK(driver.unpin(base + kPage, kPage).code() == Code::invalid_argument);
  TM_CHECK(driver.unpin(base + kPage, 3 * kPage).ok());
  TM_CHECK(locked_bytes() == before && driver.counters().pins == 0 && driver.is_valid());
  TM_CHECK(driver.deallocate(0, base, 16 * kPage, pages).ok());
}

TM_TEST("a pin inside a pinned block leaves the block pinned when it goes") {
  HostDriver& driver = host_driver();
  const AllocationOptions pinned{MemoryKind::pinned, 256, -1, false, false};
  const std::uint64_t before = locked_bytes();
  std::uint64_t block = 0;
  TM_CHECK(driver.allocate(0, 64 * kKiB, pinned, &block).ok());
  TM_CHECK(driver.pin(block, 100).ok() && driver.unpin(block, 100).ok());
  TM_CHECK(locked_bytes() == before + 64 * kKiB);
  TM_CHECK(driver.deallocate(0, block, 64 * kKiB, pinned).ok());
  TM_CHECK(locked_bytes() == before && driver.counters().pins == 0 && driver.is_valid());
}

TM_TEST("bad pins are refused") {
  HostDriver& driver = host_driver();
  TM_CHECK(driver.pin(0, 100).code() == Code::invalid_argument);
  TM_CHECK(driver.pin(4096, 0).code() == Code::invalid_size);
  TM_CHECK(driver.pin(~0ULL - 10, 100).code() == Code::invalid_size);
  const Status unmapped = driver.pin(4096, 100);
  TM_CHECK(unmapped.code() == Code::driver_error && unmapped.failure().driver_code == ENOMEM);
  TM_CHECK(driver.unpin(4096, 100).code() == Code::invalid_argument);
  TM_CHECK(driver.counters().pins == 0 && driver.is_valid());
}

int allocate_beyond_the_lock_limit() {
  const rlimit limit{kMiB, kMiB};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 1;
  if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 2;
  const test::ProcessState before = test::ProcessState::now();
  const AllocationOptions pinned{MemoryKind::pinned, 256, -1, false, false};
  std::uint64_t address = 42;
  const Status refused = host_driver().allocate(0, 64 * kMiB, pinned, &address);
  if (refused.code() != Code::driver_error || std::strcmp(refused.failure().what, "mlock") != 0) return 3;
  if (refused.failure().driver_code != ENOMEM && refused.failure().driver_code != EPERM) return 4;
  if (address != 42 || !test::holds_nothing() || locked_bytes() != 0) return 5;
  return before.is_restored() ? 0 : 6;
}

TM_TEST("a refused lock tells mlock and its errno, and leaks nothing") {
  TM_CHECK(test::exited_with(test::in_child(allocate_beyond_the_lock_limit), 0));
}

// --- Stream order ------------------------------------------------------------------------------------------------

void wait_for_flag(void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }

TM_TEST("stream-ordered memory is freed when the stream gets there, not before") {
  HostDriver& driver = host_driver();
  constexpr std::uint64_t kBytes = 64 * kMiB;  // so large that the heap gives it back to the system at once
  StreamId stream = 0;
  TM_CHECK(driver.stream_create(0, &stream).ok());
  std::atomic<bool> go{false};
  std::uint64_t block = 0;
  TM_CHECK(driver.allocate_async(0, kNoPool, kBytes, stream, &block).ok() && is_aligned(block, 256));
  TM_CHECK(driver.launch_host(&wait_for_flag, &go, stream).ok());
  TM_CHECK(driver.fill(Pitched{block}, CopyShape{kBytes}, 7, 1, stream).ok());
  TM_CHECK(driver.deallocate_async(0, block, kBytes, stream).ok());
  bytes_at(block)[0] = 1;
  TM_CHECK(is_mapped(block));
  go.store(true);
  go.notify_all();
  TM_CHECK(driver.stream_synchronize(stream).ok());
  if (!TM_SANITIZED) TM_CHECK(!is_mapped(block));
  TM_CHECK(driver.trim_async(0, kNoPool, 0).ok());
  TM_CHECK(driver.trim_async(1, kNoPool, 0).code() == Code::invalid_argument);
  TM_CHECK(driver.stream_destroy(stream).ok());
}

TM_TEST("bad stream-ordered requests are refused") {
  HostDriver& driver = host_driver();
  std::uint64_t block = 42;
  TM_CHECK(driver.allocate_async(0, kNoPool, 0, kDefaultStream, &block).code() == Code::invalid_size);
  TM_CHECK(driver.allocate_async(1, kNoPool, 64, kDefaultStream, &block).code() == Code::invalid_argument);
  TM_CHECK(driver.allocate_async(0, kNoPool, 1ULL << 50, kDefaultStream, &block).code() == Code::out_of_memory);
  TM_CHECK(driver.deallocate_async(0, 0, 64, kDefaultStream).code() == Code::invalid_argument);
  TM_CHECK(driver.deallocate_async(0, 4096, 0, kDefaultStream).code() == Code::invalid_size);
  TM_CHECK(driver.deallocate_async(0, 4096 + 8, 64, kDefaultStream).code() == Code::invalid_argument);
  TM_CHECK(block == 42);
}

TM_TEST("prefetching brings pages in, and refuses what is not mapped") {
  HostDriver& driver = host_driver();
  const AllocationOptions pages{MemoryKind::device, kMiB, -1, false, true};
  constexpr std::uint64_t kBytes = 32 * kMiB;
  std::uint64_t block = 0;
  TM_CHECK(driver.allocate(0, kBytes, pages, &block).ok());
  const std::uint64_t before = test::resident_bytes();
  TM_CHECK(driver.prefetch(block + 1, kBytes - 1, -1, kDefaultStream).ok());
  TM_CHECK(test::resident_bytes() >= before + kBytes - 64 * kKiB);
  TM_CHECK(all_zero(block, kBytes));
  TM_CHECK(driver.prefetch(block, 10, 3, kDefaultStream).code() == Code::invalid_argument);
  TM_CHECK(driver.prefetch(0, 10, 0, kDefaultStream).code() == Code::invalid_argument);
  TM_CHECK(driver.prefetch(block, 0, 0, kDefaultStream).code() == Code::invalid_size);
  TM_CHECK(driver.prefetch(block, ~0ULL, 0, kDefaultStream).code() == Code::invalid_size);
  TM_CHECK(driver.deallocate(0, block, kBytes, pages).ok());
  TM_CHECK(driver.prefetch(block, kBytes, 0, kDefaultStream).code() == Code::invalid_argument);
}

// --- The machine -------------------------------------------------------------------------------------------------

TM_TEST("the driver is one device called host, with the machine's memory") {
  HostDriver& driver = host_driver();
  std::int32_t count = 0;
  DeviceInfo device;
  MemoryInfo memory;
  TM_CHECK(std::strcmp(driver.name(), "host") == 0);
  TM_CHECK(driver.device_count(&count).ok() && count == 1);
  TM_CHECK(driver.device_info(0, &device).ok() && driver.memory_info(0, &memory).ok());
  TM_CHECK(device.virtual_memory && !device.managed_memory && !device.simulated);
  TM_CHECK(device.total_bytes == memory.total_bytes && memory.total_bytes > 64 * kMiB);
  TM_CHECK(memory.free_bytes > 0 && memory.free_bytes <= memory.total_bytes);
  TM_CHECK(driver.device_info(1, &device).code() == Code::invalid_argument);
  TM_CHECK(driver.memory_info(-1, &memory).code() == Code::invalid_argument);
}

// --- Forks, threads, faults --------------------------------------------------------------------------------------

TM_TEST("a forked child has its own copy of plain memory and may give it back") {
  const AllocationOptions pages{MemoryKind::device, kMiB, -1, false, false};
  std::uint64_t block = 0;
  TM_CHECK(host_driver().allocate(0, 8192, pages, &block).ok());
  bytes_at(block)[0] = 5;
  const int status = test::in_child([&] {
    if (bytes_at(block)[0] != 5) return 1;
    bytes_at(block)[0] = 6;
    return host_driver().deallocate(0, block, 8192, pages).ok() && test::holds_nothing() ? 0 : 2;
  });
  TM_CHECK(test::exited_with(status, 0));
  TM_CHECK(bytes_at(block)[0] == 5);
  TM_CHECK(host_driver().deallocate(0, block, 8192, pages).ok());
}

TM_TEST("threads allocate, pin and give back at once") {
  auto churn = [](unsigned seed) {
    const std::vector<AllocationOptions> all = every_kind_of_options();
    for (unsigned i = 0; i < 60; ++i) {
      const AllocationOptions& options = all[(i * 7 + seed) % all.size()];
      const std::uint64_t nbytes = 1000 + i * 700;
      std::uint64_t address = 0;
      TM_CHECK(host_driver().allocate(0, nbytes, options, &address).ok());
      std::memset(bytes_at(address), static_cast<int>(i), nbytes);
      TM_CHECK(host_driver().pin(address, nbytes).ok());
      TM_CHECK(host_driver().unpin(address, nbytes).ok());
      TM_CHECK(host_driver().deallocate(0, address, nbytes, options).ok());
    }
  };
  std::thread one(churn, 1);
  std::thread two(churn, 2);
  churn(3);
  one.join();
  two.join();
  TM_CHECK(test::holds_nothing() && host_driver().is_valid());
}

void allocate_every_way() {
  HostDriver& driver = host_driver();
  for (const AllocationOptions& options :
       {AllocationOptions{}, AllocationOptions{MemoryKind::pinned, kMiB, 0, true, true},
        AllocationOptions{MemoryKind::device, 8 * kMiB, 0, true, false}}) {
    constexpr std::uint64_t kBytes = 3 * kMiB;
    std::uint64_t address = 0;
    if (!driver.allocate(0, kBytes, options, &address).ok()) continue;
    bytes_at(address)[kBytes - 1] = 1;
    if (driver.pin(address, 5000).ok()) {
      // What fails leaves everything as it was, so it can be tried again.
      if (!driver.unpin(address, 5000).ok()) TM_CHECK(driver.unpin(address, 5000).ok());
    }
    (void)driver.prefetch(address, 5000, 0, kDefaultStream).ok();
    if (!driver.deallocate(0, address, kBytes, options).ok()) {
      bytes_at(address)[kBytes - 1] = 2;
      TM_CHECK(driver.deallocate(0, address, kBytes, options).ok());
    }
  }
}

TM_TEST("every system call behind plain memory may fail and nothing leaks") {
  const std::uint64_t locked = locked_bytes();
  for (const int error : {ENOMEM, EINVAL, EPERM}) {
    TM_CHECK(test::fail_every_call(allocate_every_way, error) >= 20);
    TM_CHECK(locked_bytes() == locked);
  }
}

}  // namespace
}  // namespace tensormem

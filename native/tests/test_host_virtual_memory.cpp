// Virtual memory of the host driver: really reserved, really mapped, really faulting.
#include <csignal>
#include <random>
#include <thread>
#include <utility>

#include "base/align.hpp"
#include "driver/host/aligned_range.hpp"
#include "driver/host/os.hpp"
#include "tests/check.hpp"
#include "tests/host_process.hpp"
#include "tests/host_ranges.hpp"

namespace tensormem {
namespace {

using test::all_are;
using test::bytes_at;
using test::is_clean;
using test::kPage;
using test::kSmall;
using test::map_writable;
using test::new_physical;
using test::new_range;

TM_TEST("the pages of the kernel are possible and 2 MiB recommended") {
  Granularity granularity;
  TM_CHECK(host_driver().granularity(0, &granularity).ok());
  TM_CHECK(granularity.minimum == kSmall && granularity.recommended == kPage);
  TM_CHECK(host_driver().granularity(1, &granularity).code() == Code::invalid_argument);
}

TM_TEST("reserving 128 GiB takes addresses and no memory") {
  const std::uint64_t resident = test::resident_bytes();
  const std::uint64_t range = new_range(128ULL << 30);
  TM_CHECK(is_aligned(range, kPage) && test::resident_bytes() < resident + kPage);
  TM_CHECK(host_driver().release(range, 128ULL << 30).ok());
  TM_CHECK(is_clean());
}

TM_TEST("reservations have the alignment asked for and keep nothing beyond their ends") {
  for (const std::uint64_t alignment : {1ULL, 4096ULL, 1ULL << 21, 1ULL << 30, 1ULL << 38}) {
    const test::ProcessState before = test::ProcessState::now();
    const std::uint64_t range = new_range(3 * kPage, alignment);
    TM_CHECK(is_aligned(range, alignment) && is_aligned(range, kPage));
    if (!TM_SANITIZED) TM_CHECK(test::ProcessState::now().reserved_bytes == before.reserved_bytes + 3 * kPage);
    TM_CHECK(host_driver().release(range, 3 * kPage).ok());
    TM_CHECK(before.is_restored());
  }
}

TM_TEST("an alignment of less than a page is a page") {
  const std::uint64_t page = host::os::page_size();
  for (const std::uint64_t alignment : {std::uint64_t{1}, page / 4, page}) {
    std::uint64_t address = 0;
    TM_CHECK(host::reserve_aligned(3 * page, alignment, &address) == 0 && is_aligned(address, page));
    TM_CHECK(host::os::unmap(address, 3 * page) == 0);
  }
}

TM_TEST("bad reservations and releases are refused and change nothing") {
  HostDriver& driver = host_driver();
  std::uint64_t address = 42;
  TM_CHECK(driver.reserve(0, kPage, &address).code() == Code::invalid_size);
  TM_CHECK(driver.reserve(~0ULL, kPage, &address).code() == Code::invalid_size);
  TM_CHECK(driver.reserve(kPage, 0, &address).code() == Code::invalid_alignment);
  TM_CHECK(driver.reserve(kPage, 3 * kPage, &address).code() == Code::invalid_alignment);
  TM_CHECK(driver.reserve(kPage + 1, kPage, &address).code() == Code::invalid_alignment);
  const Status huge = driver.reserve(1ULL << 60, kPage, &address);
  TM_CHECK(huge.code() == Code::out_of_virtual_memory && huge.failure().facts[0] == 1ULL << 60);
  TM_CHECK(driver.reserve(kPage, 1ULL << 63, &address).code() == Code::out_of_virtual_memory);
  TM_CHECK(address == 42 && is_clean());

  const std::uint64_t range = new_range(4 * kPage);
  TM_CHECK(driver.release(range, 2 * kPage).code() == Code::invalid_argument);
  TM_CHECK(driver.release(range + kPage, 3 * kPage).code() == Code::invalid_argument);
  const PhysicalHandle physical = new_physical(kPage);
  map_writable(range + kPage, kPage, physical);
  const Status mapped = driver.release(range, 4 * kPage);
  TM_CHECK(mapped.code() == Code::still_mapped && mapped.failure().facts[0] == range && mapped.failure().facts[1] == 1);
  bytes_at(range + kPage)[0] = 1;
  TM_CHECK(driver.unmap(range + kPage, kPage).ok() && driver.release(range, 4 * kPage).ok());
  TM_CHECK(driver.release(range, 4 * kPage).code() == Code::invalid_argument);
  TM_CHECK(driver.physical_destroy(physical).ok() && is_clean());
}

// --- Map, unmap, access ----------------------------------------------------------------------------------------------

TM_TEST("one physical memory at two addresses shows the same bytes") {
  const std::uint64_t range = new_range(8 * kPage);
  const PhysicalHandle physical = new_physical(2 * kPage);
  map_writable(range, 2 * kPage, physical);
  map_writable(range + 4 * kPage, 2 * kPage, physical);
  map_writable(range + 7 * kPage, kSmall, physical, kPage + kSmall);
  bytes_at(range)[100] = 1;
  bytes_at(range + 4 * kPage)[kPage + kSmall] = 2;
  TM_CHECK(bytes_at(range + 4 * kPage)[100] == 1 && bytes_at(range)[kPage + kSmall] == 2);
  TM_CHECK(bytes_at(range + 7 * kPage)[0] == 2);
  TM_CHECK(host_driver().unmap(range, 2 * kPage).ok());
  TM_CHECK(bytes_at(range + 4 * kPage)[100] == 1);
  TM_CHECK(host_driver().unmap(range + 4 * kPage, 2 * kPage).ok());
  TM_CHECK(host_driver().unmap(range + 7 * kPage, kSmall).ok());
  TM_CHECK(host_driver().physical_destroy(physical).ok() && host_driver().release(range, 8 * kPage).ok());
  TM_CHECK(is_clean());
}

TM_TEST("bad maps are refused with their reason and change nothing") {
  HostDriver& driver = host_driver();
  const std::uint64_t range = new_range(4 * kPage);
  const PhysicalHandle physical = new_physical(2 * kPage);
  map_writable(range + kPage, kPage, physical);
  const auto code_of = [&](std::uint64_t address, std::uint64_t size, PhysicalHandle handle, std::uint64_t offset) {
    return driver.map(address, size, handle, offset).code();
  };
  TM_CHECK(code_of(range, 0, physical, 0) == Code::invalid_size);
  TM_CHECK(code_of(range + 1, kPage, physical, 0) == Code::invalid_alignment);
  TM_CHECK(code_of(range, kPage - 1, physical, 0) == Code::invalid_alignment);
  TM_CHECK(code_of(range, kSmall, physical, 5) == Code::invalid_alignment);
  TM_CHECK(code_of(range - kSmall, kSmall, physical, 0) == Code::invalid_argument);
  TM_CHECK(code_of(range + 3 * kPage, 2 * kPage, physical, 0) == Code::invalid_argument);
  TM_CHECK(code_of(0, kSmall, physical, 0) == Code::invalid_argument);
  TM_CHECK(code_of(~0ULL - kSmall + 1, kSmall, physical, 0) == Code::invalid_size);
  TM_CHECK(code_of(range, kPage, 999999, 0) == Code::invalid_argument);
  const Status beyond = driver.map(range + 2 * kPage, 2 * kPage, physical, kPage);
  TM_CHECK(beyond.code() == Code::invalid_offset && beyond.failure().facts[0] == kPage);
  TM_CHECK(beyond.failure().facts[1] == 2 * kPage && beyond.failure().facts[2] == 2 * kPage);
  TM_CHECK(code_of(range + 2 * kPage, kSmall, physical, ~0ULL - kSmall + 1) == Code::invalid_offset);
  for (const std::uint64_t start : {range, range + kPage, range + kPage + kSmall}) {
    const Status overlap = driver.map(start, 2 * kPage, physical, 0);
    TM_CHECK(overlap.code() == Code::already_mapped);
    TM_CHECK(overlap.failure().facts[0] == kPage && overlap.failure().facts[1] == kPage);
  }
  bytes_at(range + kPage)[7] = 7;
  TM_CHECK(driver.counters().mappings == 1);
  TM_CHECK(driver.unmap(range + kPage, kPage).ok() && driver.release(range, 4 * kPage).ok());
  TM_CHECK(driver.physical_destroy(physical).ok() && is_clean());
}

TM_TEST("unmapping takes whole, several or partial mappings, and refuses any range with a hole") {
  HostDriver& driver = host_driver();
  const std::uint64_t range = new_range(8 * kPage);
  const PhysicalHandle first = new_physical(2 * kPage);
  const PhysicalHandle second = new_physical(2 * kPage);
  map_writable(range, 2 * kPage, first);
  map_writable(range + 2 * kPage, 2 * kPage, second);
  map_writable(range + 5 * kPage, kPage, first, kPage);
  std::memset(reinterpret_cast<void*>(range), 1, 4 * kPage);
  const Status hole = driver.unmap(range + 3 * kPage, 3 * kPage);
  TM_CHECK(hole.code() == Code::not_mapped && hole.failure().facts[0] == 4 * kPage && hole.failure().facts[1] == kPage);
  TM_CHECK(driver.unmap(range + 6 * kPage, kPage).code() == Code::not_mapped);
  TM_CHECK(driver.unmap(range + 7 * kPage, 2 * kPage).code() == Code::invalid_argument);
  TM_CHECK(driver.unmap(range, 0).code() == Code::invalid_size);
  TM_CHECK(driver.unmap(range + 1, kPage).code() == Code::invalid_alignment);
  TM_CHECK(driver.set_access(range + 3 * kPage, 2 * kPage, 0, AccessFlags::read).code() == Code::not_mapped);
  TM_CHECK(driver.counters().mappings == 3);
  // The end of one and the beginning of the next, in one call; the rest stays as it was.
  TM_CHECK(driver.unmap(range + kPage, 2 * kPage).ok());
  TM_CHECK(all_are(range, kPage, 1) && all_are(range + 3 * kPage, kPage, 1));
  TM_CHECK(driver.unmap(range + kPage, kPage).code() == Code::not_mapped);
  TM_CHECK(driver.unmap(range + kSmall, kSmall).ok());
  TM_CHECK(all_are(range, kSmall, 1) && all_are(range + 2 * kSmall, kPage - 2 * kSmall, 1));
  for (const auto& [start, size] : {std::pair{range, kSmall}, std::pair{range + 2 * kSmall, kPage - 2 * kSmall},
                                    std::pair{range + 3 * kPage, kPage}, std::pair{range + 5 * kPage, kPage}}) {
    TM_CHECK(driver.unmap(start, size).ok());
  }
  TM_CHECK(driver.physical_destroy(first).ok() && driver.physical_destroy(second).ok());
  TM_CHECK(driver.release(range, 8 * kPage).ok() && is_clean());
}

// In a child, because it may die of it. It makes its own memory: what is inherited belongs to the parent.
template <typename Touch>
int touch_in_child(AccessFlags access, Touch&& touch) {
  return test::in_child([&] {
    const std::uint64_t range = new_range(2 * kPage);
    const PhysicalHandle physical = new_physical(kPage);
    map_writable(range, kPage, physical);
    bytes_at(range)[0] = 77;
    if (!host_driver().set_access(range, kPage, 0, access).ok()) return 1;
    return touch(range);
  });
}

TM_TEST("a denied access faults for real") {
  const auto read = [](std::uint64_t address) { return static_cast<int>(bytes_at(address)[0]); };
  const auto write = [](std::uint64_t address) {
    bytes_at(address)[0] = 78;
    return 78;
  };
  const auto read_reserved = [](std::uint64_t address) { return static_cast<int>(bytes_at(address)[kPage]); };
  TM_CHECK(test::exited_with(touch_in_child(AccessFlags::read_write, write), 78));
  TM_CHECK(test::exited_with(touch_in_child(AccessFlags::read, read), 77));
  TM_CHECK(test::died_of(touch_in_child(AccessFlags::read, write), SIGSEGV));
  TM_CHECK(test::died_of(touch_in_child(AccessFlags::none, read), SIGSEGV));
  TM_CHECK(test::died_of(touch_in_child(AccessFlags::read_write, read_reserved), SIGSEGV));
  const auto read_unmapped = [](std::uint64_t address) {
    if (!host_driver().unmap(address, kPage).ok()) return 1;
    return static_cast<int>(bytes_at(address)[0]);
  };
  TM_CHECK(test::died_of(touch_in_child(AccessFlags::read_write, read_unmapped), SIGSEGV));
}

TM_TEST("freshly mapped memory cannot be touched before access is set") {
  const int status = test::in_child([] {
    const std::uint64_t range = new_range(kPage);
    if (!host_driver().map(range, kPage, new_physical(kPage), 0).ok()) return 1;
    return static_cast<int>(bytes_at(range)[0]);
  });
  TM_CHECK(test::died_of(status, SIGSEGV));
}

TM_TEST("bad access is refused") {
  HostDriver& driver = host_driver();
  const std::uint64_t range = new_range(kPage);
  const PhysicalHandle physical = new_physical(kPage);
  TM_CHECK(driver.set_access(range, kPage, 0, AccessFlags::read).code() == Code::not_mapped);
  map_writable(range, kPage, physical);
  TM_CHECK(driver.set_access(range, kPage, 4, AccessFlags::read).code() == Code::invalid_argument);
  TM_CHECK(driver.set_access(range, kPage, 0, static_cast<AccessFlags>(2)).code() == Code::invalid_argument);
  TM_CHECK(driver.set_access(range, 0, 0, AccessFlags::read).code() == Code::invalid_size);
  TM_CHECK(driver.set_access(range + 3, kSmall, 0, AccessFlags::read).code() == Code::invalid_alignment);
  bytes_at(range)[0] = 1;
  TM_CHECK(driver.set_access(range, kPage, -1, AccessFlags::read).ok());
  TM_CHECK(driver.unmap(range, kPage).ok() && driver.physical_destroy(physical).ok());
  TM_CHECK(driver.release(range, kPage).ok() && is_clean());
}

// --- Threads and faults ----------------------------------------------------------------------------------------------

TM_TEST("threads create, map, touch, unmap and destroy in one range at once, while others fork") {
  constexpr std::uint64_t kEach = 16;
  const std::uint64_t range = new_range(3 * kEach * kPage);
  auto churn = [&](std::uint64_t first, unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) {
      PhysicalOptions options;
      options.exportable = i % 5 == 0;
      options.placement = range + (first + random() % kEach) * kPage;
      const PhysicalHandle physical = new_physical(kPage, options);
      const std::uint64_t at = range + (first + random() % kEach) * kPage;
      map_writable(at, kPage, physical);
      bytes_at(at)[i] = static_cast<char>(i);
      TM_CHECK(bytes_at(at)[i] == static_cast<char>(i));
      if (i % 2 == 0) TM_CHECK(host_driver().physical_destroy(physical).ok());
      TM_CHECK(host_driver().unmap(at, kPage).ok());
      if (i % 2 == 1) TM_CHECK(host_driver().physical_destroy(physical).ok());
    }
  };
  std::thread one(churn, 0, 1);
  std::thread two(churn, kEach, 2);
  for (int i = 0; i < (test::can_fork_amid_threads() ? 10 : 0); ++i) {
    const int status = test::in_child([] {
      const std::uint64_t mine = new_range(kPage);
      map_writable(mine, kPage, new_physical(kPage));
      bytes_at(mine)[0] = 3;
      return static_cast<int>(bytes_at(mine)[0]);
    });
    TM_CHECK(test::exited_with(status, 3));
  }
  churn(2 * kEach, 3);
  one.join();
  two.join();
  TM_CHECK(host_driver().release(range, 3 * kEach * kPage).ok() && is_clean());
}

// Does as much as it can and undoes exactly what worked, trying again what must not be left.
void use_virtual_memory_once(bool exportable, bool huge) {
  HostDriver& driver = host_driver();
  std::uint64_t range = 0;
  PhysicalHandle physical = kNoPhysical;
  PhysicalHandle imported = kNoPhysical;
  std::int32_t fd = -1;
  PhysicalOptions options;
  options.exportable = exportable;
  options.huge_pages = huge;
  const bool reserved = driver.reserve(4 * kPage, kPage, &range).ok();
  const bool created = driver.physical_create(0, 2 * kPage, options, &physical).ok();
  const bool mapped = reserved && created && driver.map(range, 2 * kPage, physical, 0).ok();
  if (mapped && driver.set_access(range, 2 * kPage, 0, AccessFlags::read_write).ok()) {
    TM_CHECK(all_are(range, 2 * kPage, 0));
    std::memset(reinterpret_cast<void*>(range), 1, 2 * kPage);
    if (!driver.set_access(range + kSmall, kSmall, 0, AccessFlags::read).ok()) bytes_at(range + kSmall)[0] = 1;
    TM_CHECK(all_are(range, 2 * kPage, 1));
  }
  if (created && exportable && driver.physical_export(physical, &fd).ok()) {
    if (driver.physical_import(0, fd, &imported).ok()) {
      if (reserved && driver.map(range + 2 * kPage, kPage, imported, kPage).ok()) {
        while (!driver.unmap(range + 2 * kPage, kPage).ok()) {
        }
      }
      TM_CHECK(driver.physical_destroy(imported).ok());
    }
    close(fd);
  }
  if (mapped && !driver.unmap(range + kPage, kPage).ok()) TM_CHECK(driver.unmap(range + kPage, kPage).ok());
  if (created) TM_CHECK(driver.physical_destroy(physical).ok());
  if (mapped && !driver.unmap(range, kPage).ok()) TM_CHECK(driver.unmap(range, kPage).ok());
  if (reserved && !driver.release(range, 4 * kPage).ok()) TM_CHECK(driver.release(range, 4 * kPage).ok());
}

TM_TEST("every system call behind virtual memory may fail and nothing leaks") {
  const std::uint64_t resident = test::resident_bytes();
  for (const int error : {ENOMEM, EINVAL}) {
    TM_CHECK(test::fail_every_call([] { use_virtual_memory_once(false, true); }, error) >= 12);
    TM_CHECK(test::fail_every_call([] { use_virtual_memory_once(false, false); }, error) >= 8);
    TM_CHECK(test::fail_every_call([] { use_virtual_memory_once(true, true); }, error) >= 12);
  }
  if (!TM_SANITIZED) TM_CHECK(test::resident_bytes() < resident + 2 * kPage);
  TM_CHECK(is_clean());
}

}  // namespace
}  // namespace tensormem

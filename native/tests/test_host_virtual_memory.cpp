// Virtual memory of the host driver: really reserved, really mapped, really faulting, really given back.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "base/align.hpp"
#include "tests/check.hpp"
#include "tests/host_process.hpp"

namespace tensormem {
namespace {

constexpr std::uint64_t kSmall = 4096;
constexpr std::uint64_t kPage = 2 << 20;

volatile char* bytes_at(std::uint64_t address) { return reinterpret_cast<volatile char*>(address); }

std::uint64_t new_range(std::uint64_t size, std::uint64_t alignment = kPage) {
  std::uint64_t address = 0;
  TM_CHECK(host_driver().reserve(size, alignment, &address).ok());
  return address;
}

PhysicalHandle new_physical(std::uint64_t size, const PhysicalOptions& options = {}) {
  PhysicalHandle physical = kNoPhysical;
  TM_CHECK(host_driver().physical_create(0, size, options, &physical).ok());
  return physical;
}

void map_writable(std::uint64_t address, std::uint64_t size, PhysicalHandle physical, std::uint64_t offset = 0) {
  TM_CHECK(host_driver().map(address, size, physical, offset).ok());
  TM_CHECK(host_driver().set_access(address, size, 0, AccessFlags::read_write).ok());
}

bool all_are(std::uint64_t address, std::uint64_t size, char value) {
  const char* const bytes = reinterpret_cast<const char*>(address);
  return bytes[0] == value && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

std::uint64_t actual_areas() {
  std::FILE* const file = std::fopen("/proc/self/maps", "r");
  std::uint64_t lines = 0;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) lines += c == '\n' ? 1 : 0;
  std::fclose(file);
  return lines;
}

bool is_clean() { return test::holds_nothing() && host_driver().counters().leftovers == 0 && host_driver().is_valid(); }

// --- Reserve -----------------------------------------------------------------------------------------------------

TM_TEST("pages of 4 KiB are possible and 2 MiB recommended") {
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
    TM_CHECK(test::ProcessState::now() == before);
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

// --- Physical memory ---------------------------------------------------------------------------------------------

TM_TEST("pages are committed when created, resident only while mapped and touched, and really given back") {
  constexpr std::uint64_t kSize = 16 * kPage;
  for (const bool huge : {true, false}) {
    PhysicalOptions options;
    options.huge_pages = huge;
    MemoryInfo before;
    MemoryInfo during;
    TM_CHECK(host_driver().memory_info(0, &before).ok());
    const std::uint64_t resident = test::resident_bytes();
    const std::uint64_t range = new_range(kSize);
    const PhysicalHandle physical = new_physical(kSize, options);
    TM_CHECK(host_driver().memory_info(0, &during).ok());
    TM_CHECK(host_driver().counters().committed_bytes == kSize);
    TM_CHECK(test::resident_bytes() < resident + kSize / 4);  // no window was left open
    map_writable(range, kSize, physical);
    TM_CHECK(all_are(range, kSize, 0));
    std::memset(reinterpret_cast<void*>(range), 3, kSize);
    TM_CHECK(test::resident_bytes() >= resident + kSize - kPage);
    TM_CHECK(host_driver().unmap(range, kSize).ok());
    TM_CHECK(test::resident_bytes() < resident + kSize / 4);
    map_writable(range, kSize, physical);  // the bytes stayed
    TM_CHECK(all_are(range, kSize, 3));
    TM_CHECK(host_driver().unmap(range, kSize).ok() && host_driver().physical_destroy(physical).ok());
    TM_CHECK(host_driver().release(range, kSize).ok() && is_clean());
  }
}

TM_TEST("pages are huge where the kernel gives them, and the reason is told where not") {
  const PhysicalHandle whole = new_physical(4 * kPage);
  const PhysicalHandle odd = new_physical(kPage + kSmall);
  const PhysicalHandle small = new_physical(kSmall);
  PhysicalInfo info;
  TM_CHECK(host_driver().physical_info(whole, &info).ok());
  TM_CHECK(info.size == 4 * kPage && !info.exportable && !info.imported && info.device == 0);
  TM_CHECK(info.huge_pages == host_driver().huge_pages_work());
  TM_CHECK((host_driver().huge_page_reason()[0] == '\0') == host_driver().huge_pages_work());
  TM_CHECK(host_driver().physical_info(odd, &info).ok() && !info.huge_pages);
  TM_CHECK(host_driver().physical_info(small, &info).ok() && !info.huge_pages);
  for (const PhysicalHandle physical : {whole, odd, small}) TM_CHECK(host_driver().physical_destroy(physical).ok());
}

TM_TEST("a refused collapse falls back to small pages with the reason kept") {
  if (!host_driver().huge_pages_work()) return;
  host::fault_plan::arm(host::SystemCall::advise, 2, ENOMEM);  // the first keeps the window from children
  const PhysicalHandle physical = new_physical(2 * kPage);
  TM_CHECK(host::fault_plan::has_fired());
  host::fault_plan::disarm();
  PhysicalInfo info;
  TM_CHECK(host_driver().physical_info(physical, &info).ok() && !info.huge_pages);
  TM_CHECK(std::strstr(host_driver().huge_page_reason(), "fragmented") != nullptr);
  const std::uint64_t range = new_range(2 * kPage);
  map_writable(range, 2 * kPage, physical);
  TM_CHECK(all_are(range, 2 * kPage, 0));
  TM_CHECK(host_driver().unmap(range, 2 * kPage).ok() && host_driver().release(range, 2 * kPage).ok());
  TM_CHECK(host_driver().physical_destroy(physical).ok());
  const PhysicalHandle next = new_physical(2 * kPage);
  TM_CHECK(host_driver().physical_info(next, &info).ok() && info.huge_pages);
  TM_CHECK(host_driver().huge_page_reason()[0] == '\0');
  TM_CHECK(host_driver().physical_destroy(next).ok() && is_clean());
}

TM_TEST("bad physical memory is refused") {
  HostDriver& driver = host_driver();
  PhysicalHandle physical = 42;
  PhysicalInfo info;
  std::int32_t fd = -5;
  TM_CHECK(driver.physical_create(0, 0, {}, &physical).code() == Code::invalid_size);
  TM_CHECK(driver.physical_create(0, ~0ULL, {}, &physical).code() == Code::invalid_size);
  TM_CHECK(driver.physical_create(0, kPage + 1, {}, &physical).code() == Code::invalid_alignment);
  TM_CHECK(driver.physical_create(3, kPage, {}, &physical).code() == Code::invalid_argument);
  for (const bool exportable : {false, true}) {
    PhysicalOptions options;
    options.exportable = exportable;
    const Status refused = driver.physical_create(0, 1ULL << 45, options, &physical);
    TM_CHECK(refused.code() == Code::out_of_physical_memory && refused.failure().facts[0] == 1ULL << 45);
    TM_CHECK(refused.failure().facts[1] > 0 && refused.failure().facts[1] < 1ULL << 45);
  }
  TM_CHECK(physical == 42);
  const PhysicalHandle gone = new_physical(kSmall);
  TM_CHECK(driver.physical_destroy(gone).ok());
  for (const PhysicalHandle bad : {kNoPhysical, gone, ~PhysicalHandle{0}}) {
    TM_CHECK(driver.physical_destroy(bad).code() == Code::invalid_argument);
    TM_CHECK(driver.physical_info(bad, &info).code() == Code::invalid_argument);
    TM_CHECK(driver.physical_export(bad, &fd).code() == Code::invalid_argument);
  }
  TM_CHECK(fd == -5 && is_clean());
}

TM_TEST("pages read as zero again after their memory was destroyed and its place taken anew") {
  const std::uint64_t range = new_range(kPage);
  for (const std::uint64_t wish : {~std::uint64_t{0}, range}) {
    for (int i = 0; i < 3; ++i) {
      PhysicalOptions options;
      options.placement = wish;
      const PhysicalHandle physical = new_physical(kPage, options);
      map_writable(range, kPage, physical);
      TM_CHECK(all_are(range, kPage, 0));
      std::memset(reinterpret_cast<void*>(range), 9, kPage);
      TM_CHECK(host_driver().unmap(range, kPage).ok() && host_driver().physical_destroy(physical).ok());
    }
  }
  TM_CHECK(host_driver().release(range, kPage).ok() && is_clean());
}

TM_TEST("destroyed memory keeps its pages until the last mapping is gone") {
  const std::uint64_t range = new_range(4 * kPage);
  const PhysicalHandle physical = new_physical(2 * kPage);
  map_writable(range, 2 * kPage, physical);
  map_writable(range + 3 * kPage, kPage, physical, kPage);
  std::memset(reinterpret_cast<void*>(range), 5, 2 * kPage);
  TM_CHECK(host_driver().physical_destroy(physical).ok());
  TM_CHECK(host_driver().physical_destroy(physical).code() == Code::invalid_argument);
  TM_CHECK(host_driver().map(range + 2 * kPage, kPage, physical, 0).code() == Code::invalid_argument);
  TM_CHECK(host_driver().unmap(range, 2 * kPage).ok());
  TM_CHECK(all_are(range + 3 * kPage, kPage, 5) && host_driver().counters().committed_bytes == 2 * kPage);
  TM_CHECK(host_driver().unmap(range + 3 * kPage, kPage).ok());
  TM_CHECK(host_driver().counters().physicals == 0 && host_driver().counters().committed_bytes == 0);
  TM_CHECK(host_driver().release(range, 4 * kPage).ok() && is_clean());
}

// --- Map, unmap, access ------------------------------------------------------------------------------------------

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

// --- Memory areas ------------------------------------------------------------------------------------------------

TM_TEST("wishing for the address of the mapping keeps a thousand pages one memory area, made in any order") {
  constexpr std::uint64_t kCount = 1000;
  const std::uint64_t range = new_range(kCount * kPage);
  const std::uint64_t before = actual_areas();
  std::vector<std::uint64_t> order(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  std::vector<PhysicalHandle> physicals(kCount);
  for (const std::uint64_t i : order) {
    PhysicalOptions options;
    options.huge_pages = false;
    options.placement = range + i * kPage;
    physicals[i] = new_physical(kSmall, options);  // small, to be quick; a mapping of one small page per slot
    TM_CHECK(host_driver().physical_destroy(physicals[i]).ok());
    options.placement = range + i * kSmall;
    physicals[i] = new_physical(kSmall, options);
    map_writable(range + i * kSmall, kSmall, physicals[i]);
  }
  if (!TM_SANITIZED) TM_CHECK(actual_areas() <= before + 2);
  TM_CHECK(host_driver().counters().mappings == kCount && host_driver().is_valid());
  TM_CHECK(host_driver().unmap(range, kCount * kSmall).ok());
  if (!TM_SANITIZED) TM_CHECK(actual_areas() == before);
  for (const PhysicalHandle physical : physicals) TM_CHECK(host_driver().physical_destroy(physical).ok());
  TM_CHECK(host_driver().release(range, kCount * kPage).ok() && is_clean());
}

TM_TEST("a wish for a place that is taken, odd or beyond the file is only a wish") {
  PhysicalOptions options;
  options.huge_pages = false;
  options.placement = 8 * kPage;
  const PhysicalHandle first = new_physical(2 * kPage, options);
  options.placement = 9 * kPage;
  const PhysicalHandle overlapping = new_physical(kPage, options);
  options.placement = 12345;
  const PhysicalHandle odd = new_physical(kPage, options);
  options.placement = 1ULL << 62;
  const PhysicalHandle beyond = new_physical(kPage, options);
  const std::uint64_t range = new_range(5 * kPage);
  map_writable(range, 2 * kPage, first);
  map_writable(range + 2 * kPage, kPage, overlapping);
  map_writable(range + 3 * kPage, kPage, odd);
  map_writable(range + 4 * kPage, kPage, beyond);
  for (std::uint64_t i = 0; i < 5; ++i) bytes_at(range + i * kPage)[0] = static_cast<char>(i + 1);
  for (std::uint64_t i = 0; i < 5; ++i) TM_CHECK(bytes_at(range + i * kPage)[0] == static_cast<char>(i + 1));
  TM_CHECK(host_driver().unmap(range, 5 * kPage).ok() && host_driver().release(range, 5 * kPage).ok());
  for (const PhysicalHandle each : {first, overlapping, odd, beyond}) {
    TM_CHECK(host_driver().physical_destroy(each).ok());
  }
  TM_CHECK(is_clean());
}

// What random maps, unmaps and changes of access should have done, page by page.
struct ModelPage {
  int physical = -1;
  std::uint64_t offset = 0;
  AccessFlags access = AccessFlags::none;
};

TM_TEST("random maps, unmaps and accesses agree with a model, and the areas are counted exactly") {
  constexpr std::uint64_t kPages = 64;
  constexpr int kPhysicals = 4;
  HostDriver& driver = host_driver();
  std::mt19937 random(11);
  const std::uint64_t range = new_range(kPages * kSmall);
  std::vector<PhysicalHandle> physicals;
  for (int i = 0; i < kPhysicals; ++i) physicals.push_back(new_physical(kPages * kSmall));
  // Every page of every physical memory says who it is.
  for (int i = 0; i < kPhysicals; ++i) {
    map_writable(range, kPages * kSmall, physicals[i]);
    for (std::uint64_t page = 0; page < kPages; ++page) {
      bytes_at(range)[page * kSmall] = static_cast<char>(i + 1);
      bytes_at(range)[page * kSmall + 1] = static_cast<char>(page);
    }
    TM_CHECK(driver.unmap(range, kPages * kSmall).ok());
  }
  std::vector<ModelPage> model(kPages);
  const std::int64_t others = static_cast<std::int64_t>(actual_areas() - driver.counters().areas);
  for (int step = 0; step < 1500; ++step) {
    const std::uint64_t first = random() % kPages;
    const std::uint64_t count = 1 + random() % std::min<std::uint64_t>(kPages - first, 12);
    const auto begin = model.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    const bool none_mapped = std::all_of(begin, end, [](const ModelPage& page) { return page.physical < 0; });
    const bool all_mapped = std::all_of(begin, end, [](const ModelPage& page) { return page.physical >= 0; });
    const std::uint64_t address = range + first * kSmall;
    const std::uint64_t size = count * kSmall;
    switch (random() % 3) {
      case 0: {
        const int which = static_cast<int>(random() % kPhysicals);
        const std::uint64_t offset = random() % (kPages - count + 1);
        const Status status = driver.map(address, size, physicals[which], offset * kSmall);
        TM_CHECK(status.ok() ? none_mapped : !none_mapped && status.code() == Code::already_mapped);
        for (std::uint64_t i = 0; status.ok() && i < count; ++i) model[first + i] = {which, offset + i};
        break;
      }
      case 1: {
        const Status status = driver.unmap(address, size);
        TM_CHECK(status.ok() ? all_mapped : !all_mapped && status.code() == Code::not_mapped);
        if (status.ok()) std::fill(begin, end, ModelPage{});
        break;
      }
      default: {
        const AccessFlags access = random() % 2 == 0 ? AccessFlags::read : AccessFlags::read_write;
        const Status status = driver.set_access(address, size, 0, access);
        TM_CHECK(status.ok() ? all_mapped : !all_mapped && status.code() == Code::not_mapped);
        for (auto page = begin; status.ok() && page != end; ++page) page->access = access;
      }
    }
    for (std::uint64_t page = 0; page < kPages; ++page) {
      if (model[page].access == AccessFlags::none) continue;
      const volatile char* const bytes = bytes_at(range + page * kSmall);
      TM_CHECK(bytes[0] == model[page].physical + 1 && bytes[1] == static_cast<char>(model[page].offset));
    }
    if (!TM_SANITIZED && step % 50 == 0) {
      TM_CHECK(static_cast<std::int64_t>(actual_areas() - driver.counters().areas) == others);
    }
    TM_CHECK(driver.is_valid());
  }
  for (std::uint64_t page = 0; page < kPages; ++page) {
    if (model[page].physical >= 0) TM_CHECK(driver.unmap(range + page * kSmall, kSmall).ok());
  }
  for (const PhysicalHandle physical : physicals) TM_CHECK(driver.physical_destroy(physical).ok());
  TM_CHECK(driver.release(range, kPages * kSmall).ok() && is_clean());
}

TM_TEST("too many mappings are refused before the kernel refuses, and everything can still be unmapped") {
  HostDriver& driver = host_driver();
  const std::uint64_t limit = driver.counters().area_limit;
  if (limit > 200000) {
    std::fprintf(stderr, "  not tried: vm.max_map_count is %llu\n", static_cast<unsigned long long>(limit));
    return;
  }
  const std::uint64_t range = new_range(limit * 2 * kSmall);
  const PhysicalHandle physical = new_physical(kSmall);
  std::uint64_t mapped = 0;
  Status status;
  while (mapped < limit) {
    status = driver.map(range + mapped * 2 * kSmall, kSmall, physical, 0);
    if (!status.ok()) break;
    ++mapped;
  }
  TM_CHECK(status.code() == Code::too_many_mappings);
  TM_CHECK(status.failure().facts[1] == limit && status.failure().facts[0] <= limit);
  TM_CHECK(mapped > limit / 3 && actual_areas() < limit);
  // The rest of the process still works.
  std::thread([] {}).join();
  TM_CHECK(driver.unmap(range, kSmall).ok());
  for (std::uint64_t i = 1; i < mapped; ++i) TM_CHECK(driver.unmap(range + i * 2 * kSmall, kSmall).ok());
  TM_CHECK(driver.physical_destroy(physical).ok() && driver.release(range, limit * 2 * kSmall).ok() && is_clean());
}

// --- Between processes -------------------------------------------------------------------------------------------

TM_TEST("exported memory is the same memory in another process and survives its maker's handle") {
  PhysicalOptions options;
  options.exportable = true;
  const PhysicalHandle physical = new_physical(kPage, options);
  std::int32_t fd = -1;
  TM_CHECK(host_driver().physical_export(physical, &fd).ok() && fd >= 0);
  TM_CHECK((fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
           (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  TM_CHECK(ftruncate(fd, 0) != 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  const std::uint64_t range = new_range(kPage);
  map_writable(range, kPage, physical);
  bytes_at(range)[5] = 50;
  const int status = test::in_child([&] {
    PhysicalHandle imported = 0;
    PhysicalInfo info;
    if (!host_driver().physical_import(0, fd, &imported).ok()) return 1;
    if (!host_driver().physical_info(imported, &info).ok() || !info.imported || info.size != kPage) return 2;
    const std::uint64_t mine = new_range(kPage);
    map_writable(mine, kPage, imported);
    if (bytes_at(mine)[5] != 50) return 3;
    bytes_at(mine)[6] = 60;
    if (!host_driver().physical_destroy(imported).ok() || !host_driver().unmap(mine, kPage).ok()) return 4;
    return 0;
  });
  TM_CHECK(test::exited_with(status, 0) && bytes_at(range)[6] == 60);
  TM_CHECK(host_driver().unmap(range, kPage).ok() && host_driver().physical_destroy(physical).ok());
  // The descriptor alone keeps it.
  PhysicalHandle again = 0;
  TM_CHECK(host_driver().physical_import(0, fd, &again).ok());
  TM_CHECK(close(fd) == 0);
  map_writable(range, kPage, again);
  TM_CHECK(bytes_at(range)[5] == 50 && bytes_at(range)[6] == 60);
  TM_CHECK(host_driver().unmap(range, kPage).ok() && host_driver().physical_destroy(again).ok());
  TM_CHECK(host_driver().release(range, kPage).ok() && is_clean());
}

Code import_code(int fd) {
  PhysicalHandle physical = 42;
  const Code code = host_driver().physical_import(0, fd, &physical).code();
  TM_CHECK(code == Code::ok || physical == 42);
  if (code == Code::ok) TM_CHECK(host_driver().physical_destroy(physical).ok());
  return code;
}

TM_TEST("descriptors that could crash us, or are no memory, are refused") {
  const std::uint64_t descriptors = test::ProcessState::now().descriptors;
  TM_CHECK(import_code(-1) == Code::invalid_argument);
  TM_CHECK(import_code(987654) == Code::invalid_argument);
  int ends[2];
  TM_CHECK(pipe(ends) == 0 && import_code(ends[0]) == Code::invalid_argument);
  close(ends[0]);
  close(ends[1]);
  const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  TM_CHECK(import_code(self) == Code::invalid_argument);
  close(self);
  const auto with_memfd = [](off_t size, int seals) {
    const int fd = memfd_create("tensormem-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    TM_CHECK(ftruncate(fd, size) == 0 && (seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0));
    const Code code = import_code(fd);
    close(fd);
    return code;
  };
  TM_CHECK(with_memfd(kPage, 0) == Code::invalid_argument);
  TM_CHECK(with_memfd(kPage, F_SEAL_GROW) == Code::invalid_argument);
  TM_CHECK(with_memfd(0, F_SEAL_SHRINK) == Code::invalid_argument);
  TM_CHECK(with_memfd(kPage + 1, F_SEAL_SHRINK) == Code::invalid_argument);
  TM_CHECK(with_memfd(1LL << 45, F_SEAL_SHRINK) == Code::out_of_physical_memory);
  TM_CHECK(with_memfd(kPage, F_SEAL_SHRINK) == Code::ok);
  TM_CHECK(host_driver().physical_import(2, 0, nullptr).code() == Code::invalid_argument);
  std::int32_t fd = -1;
  const PhysicalHandle ordinary = new_physical(kSmall);
  TM_CHECK(host_driver().physical_export(ordinary, &fd).code() == Code::invalid_argument && fd == -1);
  TM_CHECK(host_driver().physical_destroy(ordinary).ok());
  TM_CHECK(test::ProcessState::now().descriptors == descriptors && is_clean());
}

TM_TEST("an imported file with holes is committed, and one sealed against writing can only be read") {
  const int sparse = memfd_create("tensormem-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  TM_CHECK(ftruncate(sparse, 4 * kPage) == 0 && fcntl(sparse, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  PhysicalHandle physical = 0;
  TM_CHECK(host_driver().physical_import(0, sparse, &physical).ok());
  struct stat facts = {};
  TM_CHECK(fstat(sparse, &facts) == 0 && static_cast<std::uint64_t>(facts.st_blocks) * 512 == 4 * kPage);
  TM_CHECK(host_driver().physical_destroy(physical).ok());
  close(sparse);

  const int sealed = memfd_create("tensormem-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  TM_CHECK(ftruncate(sealed, kPage) == 0 && pwrite(sealed, "hello", 5, 0) == 5);
  TM_CHECK(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0);
  TM_CHECK(host_driver().physical_import(0, sealed, &physical).ok());
  const std::uint64_t range = new_range(kPage);
  // Older kernels refuse any shared mapping of such a file; none lets it be written.
  if (host_driver().map(range, kPage, physical, 0).ok()) {
    TM_CHECK(host_driver().set_access(range, kPage, 0, AccessFlags::read).ok() && bytes_at(range)[0] == 'h');
    TM_CHECK(host_driver().set_access(range, kPage, 0, AccessFlags::read_write).code() == Code::invalid_argument);
    TM_CHECK(bytes_at(range)[1] == 'e');
    TM_CHECK(host_driver().unmap(range, kPage).ok());
  }
  TM_CHECK(host_driver().physical_destroy(physical).ok() && host_driver().release(range, kPage).ok());
  close(sealed);
  TM_CHECK(is_clean());
}

int use_inherited_memory(std::uint64_t range, PhysicalHandle ordinary, PhysicalHandle exportable) {
  HostDriver& driver = host_driver();
  std::int32_t fd = -1;
  if (driver.map(range + 2 * kPage, kPage, ordinary, 0).code() != Code::invalid_argument) return 1;
  if (driver.set_access(range, kPage, 0, AccessFlags::read_write).code() != Code::invalid_argument) return 2;
  if (driver.physical_export(exportable, &fd).code() != Code::invalid_argument) return 3;
  // Fresh memory works, and does not come from the parent's file.
  const std::uint64_t mine = new_range(kPage);
  PhysicalOptions options;
  options.placement = range;
  const PhysicalHandle fresh = new_physical(kPage, options);
  map_writable(mine, kPage, fresh);
  if (!all_are(mine, kPage, 0)) return 4;
  std::memset(reinterpret_cast<void*>(mine), 9, kPage);
  // Tearing down what was inherited works and harms nobody.
  if (!driver.unmap(range, 2 * kPage).ok()) return 5;
  if (!driver.physical_destroy(ordinary).ok() || !driver.physical_destroy(exportable).ok()) return 6;
  if (!driver.release(range, 4 * kPage).ok()) return 7;
  if (!driver.unmap(mine, kPage).ok() || !driver.physical_destroy(fresh).ok()) return 8;
  if (!driver.release(mine, kPage).ok() || !driver.is_valid()) return 9;
  return test::holds_nothing() ? 0 : 10;
}

TM_TEST("a forked child can neither see nor harm the parent's pages, and can make its own") {
  const std::uint64_t range = new_range(4 * kPage);
  PhysicalOptions options;
  options.placement = range;
  const PhysicalHandle ordinary = new_physical(kPage, options);
  options.exportable = true;
  const PhysicalHandle exportable = new_physical(kPage, options);
  map_writable(range, kPage, ordinary);
  map_writable(range + kPage, kPage, exportable);
  std::memset(reinterpret_cast<void*>(range), 4, 2 * kPage);
  TM_CHECK(test::died_of(test::in_child([&] { return static_cast<int>(bytes_at(range)[0]); }), SIGSEGV));
  TM_CHECK(test::died_of(test::in_child([&] { return static_cast<int>(bytes_at(range + kPage)[0]); }), SIGSEGV));
  TM_CHECK(test::exited_with(test::in_child([&] { return use_inherited_memory(range, ordinary, exportable); }), 0));
  TM_CHECK(all_are(range, 2 * kPage, 4));
  TM_CHECK(host_driver().unmap(range, 2 * kPage).ok() && host_driver().release(range, 4 * kPage).ok());
  TM_CHECK(host_driver().physical_destroy(ordinary).ok() && host_driver().physical_destroy(exportable).ok());
  TM_CHECK(is_clean());
}

// --- Threads and faults ------------------------------------------------------------------------------------------

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
  for (int i = 0; i < 10; ++i) {
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

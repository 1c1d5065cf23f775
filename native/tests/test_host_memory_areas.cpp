// The memory areas that mappings cost: joined where neighbours are neighbours, counted exactly, refused in time.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

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

std::uint64_t actual_areas() {
  std::FILE* const file = std::fopen("/proc/self/maps", "r");
  std::uint64_t lines = 0;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) lines += c == '\n' ? 1 : 0;
  std::fclose(file);
  return lines;
}

// As the kernel sees it: it reads for us, and says no instead of a fault.
bool can_be_read(std::uint64_t address) {
  int ends[2] = {};
  TM_CHECK(pipe(ends) == 0);
  const bool can = write(ends[1], reinterpret_cast<const void*>(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return can;
}

TM_TEST("wishing for the address of the mapping keeps a thousand pages one memory area, made in any order") {
  constexpr std::uint64_t kCount = 1000;
  const std::uint64_t range = new_range(kCount * kSmall);
  const std::uint64_t before = actual_areas();
  std::vector<std::uint64_t> order(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  std::vector<PhysicalHandle> physicals(kCount);
  for (const std::uint64_t i : order) {
    PhysicalOptions options;
    options.placement = range + i * kSmall;
    physicals[i] = new_physical(kSmall, options);
    map_writable(range + i * kSmall, kSmall, physicals[i]);
  }
  if (!TM_SANITIZED) TM_CHECK(actual_areas() <= before + 2);
  TM_CHECK(host_driver().counters().mappings == kCount && host_driver().is_valid());
  TM_CHECK(host_driver().unmap(range, kCount * kSmall).ok());
  if (!TM_SANITIZED) TM_CHECK(actual_areas() == before);
  for (const PhysicalHandle physical : physicals) TM_CHECK(host_driver().physical_destroy(physical).ok());
  TM_CHECK(host_driver().release(range, kCount * kSmall).ok() && is_clean());
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

#if !defined(__SANITIZE_THREAD__)  // its runtime needs areas of its own while there are none, and ends the process
TM_TEST("what is mapped can be unmapped and released when others took the last area") {
  HostDriver& driver = host_driver();
  const std::uint64_t limit = driver.counters().area_limit;
  if (limit > 200000) {
    std::fprintf(stderr, "  not tried: vm.max_map_count is %llu\n", static_cast<unsigned long long>(limit));
    return;
  }
  constexpr std::uint64_t kIslands = 32;
  const std::uint64_t kBytes = 2 * kIslands * kSmall;
  const std::uint64_t range = new_range(kBytes);
  const PhysicalHandle physical = new_physical(kSmall);
  for (std::uint64_t i = 0; i < kIslands; ++i) map_writable(range + 2 * i * kSmall, kSmall, physical);
  const std::uint64_t pages = limit + 64;
  char* const foreign =
      static_cast<char*>(mmap(nullptr, pages * kSmall, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  TM_CHECK(foreign != MAP_FAILED && can_be_read(range));
  for (std::uint64_t page = 1; page < pages; page += 2) (void)mprotect(foreign + page * kSmall, kSmall, PROT_NONE);
  while (mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
  }
  bool all_unmapped = true;
  for (std::uint64_t i = 0; i < kIslands; ++i) {
    all_unmapped = driver.unmap(range + 2 * i * kSmall, kSmall).ok() && all_unmapped;
  }
  TM_CHECK(all_unmapped && driver.is_valid());
  TM_CHECK(!can_be_read(range) && driver.physical_destroy(physical).ok());
  TM_CHECK(driver.release(range, kBytes).ok() && is_clean());
  TM_CHECK(munmap(foreign, pages * kSmall) == 0);
}

TM_TEST("room that others gave back is seen after a refusal") {
  HostDriver& driver = host_driver();
  const std::uint64_t limit = driver.counters().area_limit;
  if (limit > 200000) {
    std::fprintf(stderr, "  not tried: vm.max_map_count is %llu\n", static_cast<unsigned long long>(limit));
    return;
  }
  const std::uint64_t range = new_range(256 * kSmall);
  const PhysicalHandle physical = new_physical(kSmall);
  // Of others: every second page of a region is of another protection.
  const std::uint64_t pages = limit - actual_areas() - 30;  // ours take the rest, so that the kernel refuses
  char* const foreign =
      static_cast<char*>(mmap(nullptr, pages * kSmall, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  for (std::uint64_t page = 1; page < pages; page += 2) (void)mprotect(foreign + page * kSmall, kSmall, PROT_NONE);
  Status status;
  std::uint64_t place = range + kSmall;  // in the middle, so that each costs two
  for (; place < range + 254 * kSmall; place += 2 * kSmall) {
    status = driver.map(place, kSmall, physical, 0);
    if (!status.ok()) break;
  }
  TM_CHECK(status.code() == Code::too_many_mappings);
  TM_CHECK(munmap(foreign, pages * kSmall) == 0);
  TM_CHECK(driver.map(place, kSmall, physical, 0).ok());
  for (std::uint64_t at = range + kSmall; at <= place; at += 2 * kSmall) TM_CHECK(driver.unmap(at, kSmall).ok());
  TM_CHECK(driver.physical_destroy(physical).ok() && driver.release(range, 256 * kSmall).ok() && is_clean());
}
#endif

}  // namespace
}  // namespace tensormem

// Physical memory of the host driver: committed when made, huge where possible, shared by descriptor, really given
// back.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

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
  PhysicalOptions options;
  options.exportable = true;
  const PhysicalHandle shared = new_physical(kPage, options);
  PhysicalInfo info;
  TM_CHECK(host_driver().physical_info(shared, &info).ok() && info.exportable);
  TM_CHECK(info.huge_pages == host_driver().huge_pages_work());
  TM_CHECK(host_driver().physical_info(whole, &info).ok());
  TM_CHECK(info.size == 4 * kPage && !info.exportable && !info.imported && info.device == 0);
  TM_CHECK(info.huge_pages == host_driver().huge_pages_work());
  TM_CHECK((host_driver().huge_page_reason()[0] == '\0') == host_driver().huge_pages_work());
  TM_CHECK(host_driver().physical_info(odd, &info).ok() && !info.huge_pages);
  TM_CHECK(host_driver().physical_info(small, &info).ok() && !info.huge_pages);
  for (const PhysicalHandle physical : {whole, odd, small, shared})
    TM_CHECK(host_driver().physical_destroy(physical).ok());
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

// --- Between processes -----------------------------------------------------------------------------------------------

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

}  // namespace
}  // namespace tensormem

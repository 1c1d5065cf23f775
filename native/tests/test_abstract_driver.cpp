// The driver of abstract memory answers as the host driver does, keeps to its capacity, and has no bytes.
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/align.hpp"
#include "driver/abstract/abstract_driver.hpp"
#include "pool/virtual_memory_pool.hpp"
#include "resource/elastic_memory_resource.hpp"
#include "tests/check.hpp"
#include "tests/host_process.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kPage = 2ULL << 20;
constexpr std::uint64_t kRangePages = 12;

std::uint64_t reserve(Driver& driver, std::uint64_t pages, std::uint64_t alignment = kPage) {
  std::uint64_t address = 0;
  TM_CHECK(driver.reserve(pages * kPage, alignment, &address).ok());
  return address;
}

PhysicalHandle create(Driver& driver, std::uint64_t pages) {
  PhysicalHandle physical = kNoPhysical;
  PhysicalOptions options;
  options.huge_pages = false;
  TM_CHECK(driver.physical_create(0, pages * kPage, options, &physical).ok());
  return physical;
}

bool is_clean(const AbstractDriver& driver) { return driver.books().is_empty() && driver.books().is_valid(); }

// The same memory on one driver: what is asked of both is said in offsets and numbers.
struct Side {
  explicit Side(Driver& which) : driver(which), base(reserve(which, kRangePages)) {}
  // The last one made is number 0. There are more numbers than handles, and handles of what was destroyed.
  PhysicalHandle handle(std::size_t number) const {
    return number < handles.size() ? handles[handles.size() - 1 - number] : 1ULL << 40;
  }

  Driver& driver;
  std::uint64_t base;
  std::vector<PhysicalHandle> handles;
};

struct Request {
  std::uint64_t kind, page, pages, number, physical_page, odd;

  Status run(Side& side) const {
    const std::uint64_t address = side.base + page * kPage + (odd == 1 ? 1 : 0);
    const std::uint64_t size = pages * kPage + (odd == 2 ? 1 : 0);
    const std::uint64_t offset = physical_page * kPage + (odd == 3 ? 1 : 0);
    const auto access = static_cast<AccessFlags>(number % 5);  // 2 and 4 are none that there are
    const std::int32_t device = odd == 4 ? 7 : 0;
    if (kind < 3) {
      const MapPiece run[] = {{side.handle(number), offset, size}, {side.handle(number / 2), 0, kPage}};
      return side.driver.map_run(address, run, 1 + number % 2, device, access);
    }
    if (kind == 3) return side.driver.map(address, size, side.handle(number), offset);
    if (kind < 6) return side.driver.unmap(address, size);
    if (kind == 6) return side.driver.set_access(address, size, device, access);
    if (kind == 7) return side.driver.release(address, size);
    if (kind == 8) return side.driver.physical_destroy(side.handle(number));
    PhysicalHandle physical = kNoPhysical;
    PhysicalOptions options;
    options.huge_pages = false;
    Status status = side.driver.physical_create(device, size, options, &physical);
    if (status.ok()) side.handles.push_back(physical);
    return status;
  }
};

bool are_same(const Status& left, const Status& right) {
  if (left.code() != right.code()) return false;
  const bool has_offset = left.code() == Code::already_mapped || left.code() == Code::not_mapped;
  return !has_offset ||
         (left.failure().facts[0] == right.failure().facts[0] && left.failure().facts[1] == right.failure().facts[1]);
}

}  // namespace

TM_TEST("whatever is asked of virtual memory, the answer is the host driver's") {
  AbstractDriver driver(1ULL << 40);
  std::mt19937_64 random(7);
  for (int round = 0; round < 12; ++round) {
    Side real(host_driver());
    Side abstract(driver);
    std::uint64_t agreed = 0;
    for (int step = 0; step < 250; ++step) {
      const Request request{random() % 10, random() % (kRangePages + 1), random() % 5, random() % 6, random() % 3,
                            random() % 40};
      const Status answer = request.run(abstract);
      TM_CHECK(are_same(request.run(real), answer));
      agreed += answer.ok() ? 1 : 0;
      TM_CHECK(driver.books().is_valid());
    }
    TM_CHECK(agreed > 20);
    for (Side* const side : {&real, &abstract}) {
      for (std::uint64_t page = 0; page < kRangePages; ++page)
        (void)side->driver.unmap(side->base + page * kPage, kPage).ok();
      for (const PhysicalHandle handle : side->handles) (void)side->driver.physical_destroy(handle).ok();
      TM_CHECK(side->driver.release(side->base, kRangePages * kPage).ok());
    }
    TM_CHECK(is_clean(driver) && holds_nothing());
  }
}

TM_TEST("reservations never overlap, have their alignment, and their addresses are used again") {
  AbstractDriver driver(kPage);
  const std::uint64_t first = reserve(driver, 3);
  const std::uint64_t second = reserve(driver, 1, 1ULL << 40);
  const std::uint64_t third = reserve(driver, 4, 1);
  TM_CHECK(is_aligned(second, 1ULL << 40) && is_aligned(third, kPage) && driver.books().is_valid());
  TM_CHECK(driver.release(first, 3 * kPage).ok() && reserve(driver, 2) == first);
  std::uint64_t address = 42;
  TM_CHECK(driver.reserve(0, kPage, &address).code() == Code::invalid_size);
  TM_CHECK(driver.reserve(~0ULL, kPage, &address).code() == Code::invalid_size);
  TM_CHECK(driver.reserve(kPage, 0, &address).code() == Code::invalid_alignment);
  TM_CHECK(driver.reserve(kPage, 3 * kPage, &address).code() == Code::invalid_alignment);
  TM_CHECK(driver.reserve(kPage + 4096, kPage, &address).code() == Code::invalid_alignment);
  const Status huge = driver.reserve(1ULL << 60, kPage, &address);
  TM_CHECK(huge.code() == Code::out_of_virtual_memory && huge.failure().facts[0] == 1ULL << 60);
  TM_CHECK(driver.reserve(kPage, 1ULL << 63, &address).code() == Code::out_of_virtual_memory);
  TM_CHECK(address == 42 && driver.books().is_valid());
}

TM_TEST("beyond its capacity it has no memory, and what is destroyed counts while it is mapped") {
  AbstractDriver driver(4 * kPage);
  const std::uint64_t range = reserve(driver, 8);
  const PhysicalHandle three = create(driver, 3);
  TM_CHECK(driver.map(range, 3 * kPage, three, 0).ok());
  PhysicalHandle none = 42;
  const Status full = driver.physical_create(0, 2 * kPage, {}, &none);
  TM_CHECK(full.code() == Code::out_of_physical_memory && none == 42);
  TM_CHECK(full.failure().facts[0] == 2 * kPage && full.failure().facts[1] == kPage);
  TM_CHECK(driver.physical_destroy(three).ok() && driver.physical_destroy(three).code() == Code::invalid_argument);
  TM_CHECK(driver.physical_create(0, 2 * kPage, {}, &none).code() == Code::out_of_physical_memory);
  MemoryInfo memory;
  TM_CHECK(driver.memory_info(0, &memory).ok() && memory.free_bytes == kPage && memory.total_bytes == 4 * kPage);
  TM_CHECK(driver.unmap(range + kPage, kPage).ok() && driver.books().used_bytes() == 3 * kPage);
  TM_CHECK(driver.unmap(range, kPage).ok() && driver.unmap(range + 2 * kPage, kPage).ok());
  TM_CHECK(driver.books().used_bytes() == 0);
  const PhysicalHandle four = create(driver, 4);
  TM_CHECK(driver.physical_destroy(four).ok() && driver.release(range, 8 * kPage).ok() && is_clean(driver));
}

TM_TEST("whatever would need bytes is not supported") {
  AbstractDriver driver(kPage);
  std::uint64_t address = 42;
  std::int32_t fd = -1;
  PhysicalHandle physical = kNoPhysical;
  PhysicalOptions exportable;
  exportable.exportable = true;
  for (const Code code :
       {driver.allocate(0, kPage, {}, &address).code(), driver.pin(kPage, kPage).code(),
        driver.allocate_async(0, kNoPool, kPage, kDefaultStream, &address).code(),
        driver.copy({}, {}, {}, kDefaultStream).code(), driver.fill({}, {}, 0, 1, kDefaultStream).code(),
        driver.prefetch(kPage, kPage, 0, kDefaultStream).code(),
        driver.physical_create(0, kPage, exportable, &physical).code(), driver.physical_export(1, &fd).code(),
        driver.physical_import(0, 0, &physical).code()}) {
    TM_CHECK(code == Code::not_supported);
  }
  TM_CHECK(address == 42 && fd == -1 && physical == kNoPhysical && is_clean(driver));
}

TM_TEST("an elastic resource holds the same pages at every step as on the host") {
  AbstractDriver driver(1ULL << 40);
  const ElasticOptions options{1ULL << 34, kPage, 2 * kPage};
  std::shared_ptr<ElasticMemoryResource> real;
  std::shared_ptr<ElasticMemoryResource> abstract;
  const auto limit = [] { return std::make_shared<LocalBudget>(24 * kPage); };
  TM_CHECK(ElasticMemoryResource::create(host_driver(), 0, options, limit(), &real).ok());
  TM_CHECK(ElasticMemoryResource::create(driver, 0, options, limit(), &abstract).ok());
  std::mt19937_64 random(3);
  std::vector<std::pair<Block, Block>> live;
  std::uint64_t refused = 0;
  for (int step = 0; step < 400; ++step) {
    if (random() % 5 < 3) {
      const std::uint64_t nbytes = 1 + random() % (random() % 3 == 0 ? 6 * kPage : kPage / 4);
      std::pair<Block, Block> made;
      const Status status = real->allocate({.nbytes = nbytes}, &made.first);
      TM_CHECK(abstract->allocate({.nbytes = nbytes}, &made.second).code() == status.code());
      if (status.ok()) live.push_back(made);
      refused += status.ok() ? 0 : 1;
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      TM_CHECK(deallocate(*real, live.back().first).ok() && deallocate(*abstract, live.back().second).ok());
      live.pop_back();
    }
    TM_CHECK(real->usage().physical_bytes == abstract->usage().physical_bytes);
    TM_CHECK(real->usage().idle_bytes == abstract->usage().idle_bytes);
    TM_CHECK(driver.books().used_bytes() == abstract->usage().physical_bytes);
    TM_CHECK(abstract->pages_are_valid() && driver.books().is_valid());
  }
  TM_CHECK(refused > 0 && real->usage().peak_physical_bytes == abstract->usage().peak_physical_bytes);
  for (const auto& [left, right] : live) TM_CHECK(deallocate(*real, left).ok() && deallocate(*abstract, right).ok());
  abstract.reset();
  TM_CHECK(is_clean(driver));
}

TM_TEST("the driver's own capacity is out of memory to an elastic resource, and nothing is lost by it") {
  AbstractDriver driver(8 * kPage);
  const ElasticOptions options{1ULL << 34, kPage, 0};
  std::shared_ptr<ElasticMemoryResource> resource;
  const auto unlimited = std::make_shared<LocalBudget>(LocalBudget::kUnlimited);
  TM_CHECK(ElasticMemoryResource::create(driver, 0, options, unlimited, &resource).ok());
  const Block block = allocate(*resource, 5 * kPage);
  TM_CHECK(try_allocate(*resource, 4 * kPage) == Code::out_of_memory && driver.books().used_bytes() == 5 * kPage);
  const Block rest = allocate(*resource, 3 * kPage);
  TM_CHECK(deallocate(*resource, block).ok() && deallocate(*resource, rest).ok());
  resource.reset();
  TM_CHECK(is_clean(driver) && unlimited->used() == 0);
}

TM_TEST("a pool runs on it, with streams that are real") {
  AbstractDriver driver(64 * kPage);
  std::shared_ptr<VirtualMemoryPool> pool;
  VirtualPoolOptions options;
  options.capacity = 64 * kPage;
  const auto limit = std::make_shared<LocalBudget>(16 * kPage);
  TM_CHECK(VirtualMemoryPool::open(driver, options, limit, &pool).ok());
  GatedStream stream;
  PoolBlockId first = 0;
  PoolBlockId second = 0;
  TM_CHECK(pool->allocate(10 * kPage, 256, false, kUntagged, &first).ok());
  TM_CHECK(pool->allocate(10 * kPage, 256, false, kUntagged, &second).code() == Code::out_of_physical_memory);
  TM_CHECK(pool->deallocate(first, stream.id()).ok() && driver.books().used_bytes() == 10 * kPage);
  stream.pass();
  TM_CHECK(pool->reap_pending().ok() && pool->allocate(16 * kPage, 256, false, kUntagged, &second).ok());
  pool.reset();
  TM_CHECK(is_clean(driver) && limit->used() == 0);
}

TM_TEST("eight threads map and unmap in one range, and the books are right") {
  AbstractDriver driver(64 * kPage);
  const std::uint64_t range = reserve(driver, 8);
  std::vector<std::thread> threads;
  for (std::uint64_t place = 0; place < 8; ++place) {
    threads.emplace_back([&driver, at = range + place * kPage] {
      for (int turn = 0; turn < 300; ++turn) {
        const PhysicalHandle physical = create(driver, 1);
        const MapPiece piece{physical, 0, kPage};
        TM_CHECK(driver.map_run(at, &piece, 1, 0, AccessFlags::read_write).ok());
        TM_CHECK(driver.physical_destroy(physical).ok() && driver.unmap(at, kPage).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(driver.release(range, 8 * kPage).ok() && is_clean(driver));
}

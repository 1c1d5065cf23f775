// The manager over a driver with the rules of a GPU's, whose every call fails in turn; and from eight threads at once.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "driver/host/os.hpp"
#include "tests/check.hpp"
#include "tests/whole_handle_driver.hpp"
#include "vmm/virtual_memory_manager.hpp"

namespace tensormem {
namespace {

const std::uint64_t kPage = host::os::page_size();
constexpr auto kNone = AccessFlags::none;
constexpr auto kRead = AccessFlags::read;
constexpr auto kReadWrite = AccessFlags::read_write;

std::unique_ptr<VirtualMemoryManager> open(Driver& driver) {
  std::unique_ptr<VirtualMemoryManager> manager;
  TM_CHECK(VirtualMemoryManager::open(driver, 0, &manager).ok());
  return manager;
}

AddressRangePtr reserve(VirtualMemoryManager& manager, std::uint64_t pages) {
  AddressRangePtr range;
  TM_CHECK(manager.reserve(pages * kPage, kPage, &range).ok());
  return range;
}

PhysicalPtr make(VirtualMemoryManager& manager, std::uint64_t pages) {
  PhysicalPtr physical;
  PhysicalOptions options;
  options.huge_pages = false;
  TM_CHECK(manager.alloc_physical(pages * kPage, 0, options, &physical).ok());
  return physical;
}

MapRequest whole(const PhysicalPtr& physical, std::uint64_t page) {
  return MapRequest{physical, page * kPage, 0, physical->size()};
}

char* at(const AddressRange& range, std::uint64_t page) { return reinterpret_cast<char*>(range.base() + page * kPage); }

bool are_same(const MappingTable::Mappings& left, const MappingTable::Mappings& right) {
  if (left.size() != right.size()) return false;
  for (auto a = left.begin(), b = right.begin(); a != left.end(); ++a, ++b) {
    if (a->first != b->first || a->second.size != b->second.size || a->second.physical != b->second.physical ||
        a->second.serial != b->second.serial || !(a->second.access == b->second.access)) {
      return false;
    }
  }
  return true;
}

// Two handles of three and two pages at pages 2 and 5 of sixteen, one byte written in each.
struct Stage {
  test::WholeHandleDriver driver;
  std::unique_ptr<VirtualMemoryManager> manager = open(driver);
  AddressRangePtr range = reserve(*manager, 16);
  AddressRangePtr other = reserve(*manager, 16);
  PhysicalPtr large = make(*manager, 3);
  PhysicalPtr small = make(*manager, 2);
  std::uint64_t serial = 0;

  Stage() {
    TM_CHECK(range->map({whole(large, 2), whole(small, 5)}, 0, kReadWrite, &serial).ok());
    *at(*range, 2) = 'a';
    *at(*range, 5) = 'b';
  }
  bool shows_its_bytes() const { return *at(*range, 2) == 'a' && *at(*range, 5) == 'b'; }
};

TM_TEST("where handles are whole, parts of them are refused and nothing changes") {
  Stage stage;
  const auto before = stage.range->mappings();
  std::uint64_t serial = 0;
  AddressRange& range = *stage.range;
  TM_CHECK(range.map({{stage.large, 10 * kPage, kPage, 2 * kPage}}, 0, kNone, &serial).code() == Code::not_supported);
  TM_CHECK(range.map({{stage.large, 10 * kPage, 0, kPage}}, 0, kNone, &serial).code() == Code::not_supported);
  TM_CHECK(range.unmap(2 * kPage, kPage).code() == Code::not_supported);
  TM_CHECK(range.unmap(3 * kPage, 4 * kPage).code() == Code::not_supported);
  TM_CHECK(range.set_access(2 * kPage, 4 * kPage, 0, kRead).code() == Code::not_supported);
  TM_CHECK(range.move(3 * kPage, kPage, stage.serial, range, 10 * kPage, &serial).code() == Code::not_supported);
  TM_CHECK(are_same(range.mappings(), before) && stage.shows_its_bytes() && range.is_valid());
}

TM_TEST("where handles are whole, several are unmapped, moved and opened one by one") {
  Stage stage;
  std::uint64_t serial = 0;
  TM_CHECK(stage.range->set_access(2 * kPage, 5 * kPage, 0, kRead).ok());
  TM_CHECK(stage.range->move(2 * kPage, 5 * kPage, stage.serial, *stage.other, kPage, &serial).ok());
  TM_CHECK(*at(*stage.other, 1) == 'a' && *at(*stage.other, 4) == 'b');
  TM_CHECK(stage.range->mappings().empty() && stage.driver.mapped_count() == 2);
  TM_CHECK(stage.other->unmap(kPage, 5 * kPage).ok() && stage.driver.mapped_count() == 0);
  TM_CHECK(stage.large->mapping_count() == 0 && stage.manager->counters().mappings.load() == 0);
}

// Runs `act` on fresh stages with the first driver call failing, then the second, until it gets through.
template <typename Act>
void fail_each_call(Act&& act) {
  for (std::uint64_t nth = 1; nth < 100; ++nth) {
    Stage stage;
    const auto before = stage.range->mappings();
    stage.driver.fail_mapping_at(nth);
    const bool ok = act(stage).ok();
    const bool failed = stage.driver.has_failed_mapping();
    stage.driver.fail_mapping_at(0);
    TM_CHECK(ok != failed);
    if (!failed) {
      TM_CHECK(nth > 1);
      return;
    }
    TM_CHECK(are_same(stage.range->mappings(), before) && stage.other->mappings().empty());
    TM_CHECK(stage.shows_its_bytes() && stage.driver.mapped_count() == 2);
    TM_CHECK(stage.large->mapping_count() == 1 && stage.manager->counters().mappings.load() == 2);
    TM_CHECK(act(stage).ok() && stage.range->is_valid() && stage.other->is_valid());
  }
  TM_CHECK(false);
}

TM_TEST("whichever driver call of an unmap fails, what was gone is put back with its access") {
  fail_each_call([](Stage& stage) { return stage.range->unmap(2 * kPage, 5 * kPage); });
}

TM_TEST("whichever driver call of a map fails, nothing is mapped") {
  fail_each_call([](Stage& stage) {
    std::uint64_t serial = 0;
    return stage.range->map({whole(stage.small, 8), whole(stage.large, 10), whole(stage.small, 14)}, 0, kRead, &serial);
  });
}

TM_TEST("whichever driver call of a move fails, everything stays where it was") {
  fail_each_call([](Stage& stage) {
    std::uint64_t serial = 0;
    return stage.range->move(2 * kPage, 5 * kPage, stage.serial, *stage.other, 0, &serial);
  });
  fail_each_call([](Stage& stage) {
    std::uint64_t serial = 0;
    return stage.range->move(2 * kPage, 5 * kPage, stage.serial, *stage.range, 9 * kPage, &serial);
  });
}

TM_TEST("whichever driver call of a change of access fails, it is as it was") {
  fail_each_call([](Stage& stage) { return stage.range->set_access(2 * kPage, 5 * kPage, 0, kRead); });
}

TM_TEST("what a manager made outlives it, and goes when its owner does") {
  auto manager = open(host_driver());
  AddressRangePtr range = reserve(*manager, 4);
  std::uint64_t serial = 0;
  TM_CHECK(range->map({whole(make(*manager, 1), 0)}, 0, kReadWrite, &serial).ok());
  manager.reset();
  *at(*range, 0) = 'x';
  TM_CHECK(range->is_valid() && range->mappings().size() == 1);
  const std::uint64_t reservations = host_driver().counters().reservations;
  range.reset();
  TM_CHECK(host_driver().counters().reservations == reservations - 1);
}

// --- Threads -------------------------------------------------------------------------------------------------------

constexpr int kThreads = 8;

void churn(VirtualMemoryManager& manager, AddressRange& shared, AddressRange& other, std::uint64_t place, int rounds) {
  const PhysicalPtr physical = make(manager, 1);
  std::uint64_t serial = 0;
  for (int round = 0; round < rounds; ++round) {
    TM_CHECK(shared.map({whole(physical, place)}, 0, kReadWrite, &serial).ok());
    std::memset(at(shared, place), static_cast<int>(place), 64);
    TM_CHECK(shared.move(place * kPage, kPage, serial, other, place * kPage, &serial).ok());
    TM_CHECK(*at(other, place) == static_cast<char>(place));
    TM_CHECK(other.set_access(place * kPage, kPage, 0, kRead).ok());
    AccessFlags access = kNone;
    TM_CHECK(other.get_access(place * kPage, kPage, 0, &access).ok() && access == kRead);
    TM_CHECK(other.move(place * kPage, kPage, serial, shared, place * kPage, &serial).ok());
    TM_CHECK(shared.is_mapped(place * kPage, kPage) && shared.is_valid());
    TM_CHECK(shared.unmap_serial(place * kPage, kPage, serial).ok());
    TM_CHECK(reserve(manager, 1) != nullptr);
  }
}

TM_TEST("eight threads move pages between two ranges both ways, and every count is right") {
  auto manager = open(host_driver());
  const AddressRangePtr shared = reserve(*manager, kThreads);
  const AddressRangePtr other = reserve(*manager, kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t place = 0; place < kThreads; ++place) {
    threads.emplace_back([&, place] { churn(*manager, *shared, *other, place, 50); });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(shared->mappings().empty() && other->mappings().empty());
  TM_CHECK(manager->counters().mappings.load() == 0 && manager->counters().mapped_bytes.load() == 0);
  TM_CHECK(manager->counters().ranges.load() == 2 && manager->counters().physicals.load() == 0);
}

void use_until_closed(VirtualMemoryManager& manager, AddressRange& shared, std::uint64_t place) {
  PhysicalOptions options;
  options.huge_pages = false;
  for (;;) {
    PhysicalPtr physical;
    AddressRangePtr own;
    std::uint64_t serial = 0;
    Status made = manager.alloc_physical(kPage, 0, options, &physical);
    if (made.ok()) made = manager.reserve(kPage, kPage, &own);
    if (made.ok()) made = own->map({whole(physical, 0)}, 0, kReadWrite, &serial);
    if (made.ok()) made = shared.map({whole(physical, place)}, 0, kReadWrite, &serial);
    if (made.ok()) made = shared.unmap_serial(place * kPage, kPage, serial);
    if (made.ok()) continue;
    // What is left of a closed manager is told so; what lost the race against the closing was unmapped by it.
    TM_CHECK(made.code() == Code::use_after_release || made.code() == Code::not_mapped);
    if (manager.is_closed()) return;
  }
}

TM_TEST("a manager closed while eight threads use it leaves nothing behind") {
  const HostCounters before = host_driver().counters();
  for (int round = 0; round < 20; ++round) {
    auto manager = open(host_driver());
    AddressRangePtr shared = reserve(*manager, kThreads);
    std::vector<std::thread> threads;
    for (std::uint64_t place = 0; place < kThreads; ++place) {
      threads.emplace_back([&, place] { use_until_closed(*manager, *shared, place); });
    }
    std::this_thread::yield();
    TM_CHECK(manager->close().ok());
    for (std::thread& thread : threads) thread.join();
    TM_CHECK(manager->close().ok() && shared->is_released());
    TM_CHECK(manager->counters().mappings.load() == 0 && manager->counters().ranges.load() == 0);
    TM_CHECK(manager->counters().physicals.load() == 0);
  }
  const HostCounters after = host_driver().counters();
  TM_CHECK(after.reservations == before.reservations && after.physicals == before.physicals);
}

TM_TEST("eight threads map, export, close and drop one piece of physical memory, which ends exactly once") {
  const HostCounters before = host_driver().counters();
  auto manager = open(host_driver());
  const AddressRangePtr range = reserve(*manager, kThreads);
  for (int round = 0; round < 50; ++round) {
    PhysicalPtr physical = make(*manager, 1);
    std::vector<std::thread> threads;
    for (std::uint64_t place = 0; place < kThreads; ++place) {
      threads.emplace_back([&, place, mine = physical]() mutable {
        std::uint64_t serial = 0;
        const Status mapped = range->map({whole(mine, place)}, 0, kReadWrite, &serial);
        if (place % 3 == 0) mine->close();
        if (place % 3 == 1) (void)mine->free().ok();
        if (mapped.ok()) TM_CHECK(range->unmap_serial(place * kPage, kPage, serial).ok());
        mine.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    TM_CHECK(physical->mapping_count() == 0 && physical->is_closed());
  }
  TM_CHECK(manager->counters().physicals.load() == 0);
  TM_CHECK(host_driver().counters().physicals == before.physicals);
}

}  // namespace
}  // namespace tensormem

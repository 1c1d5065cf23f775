#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "resource/elastic_memory_resource.hpp"
#include "tests/check.hpp"
#include "tests/failing_driver.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kPage = 64ULL << 10;

std::shared_ptr<ElasticMemoryResource> make(Driver& driver, std::uint64_t limit = LocalBudget::kUnlimited,
                                            std::uint64_t keep = 0) {
  std::shared_ptr<ElasticMemoryResource> resource;
  const ElasticOptions options{1ULL << 34, kPage, keep};
  TM_CHECK(ElasticMemoryResource::create(driver, 0, options, std::make_shared<LocalBudget>(limit), &resource).ok());
  return resource;
}

}  // namespace

TM_TEST("free pages in pieces serve a block that needs all of them, and hold no more than the limit") {
  auto resource = make(host_driver(), 32 * kPage, 32 * kPage);
  std::vector<Block> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(allocate(*resource, kPage));
  TM_CHECK(try_allocate(*resource, 1) == Code::out_of_memory);
  for (std::size_t i = 0; i < blocks.size(); i += 2) TM_CHECK(deallocate(*resource, blocks[i]).ok());
  const Block large = allocate(*resource, 16 * kPage);
  std::memset(bytes_of(large), 7, large.nbytes);
  TM_CHECK(resource->usage().physical_bytes == 32 * kPage);
  TM_CHECK(try_allocate(*resource, 1) == Code::out_of_memory);
  TM_CHECK(resource->pages_are_valid());
  TM_CHECK(deallocate(*resource, large).ok());
  for (std::size_t i = 1; i < blocks.size(); i += 2) TM_CHECK(deallocate(*resource, blocks[i]).ok());
  std::uint64_t released = 0;
  TM_CHECK(resource->trim(0, &released).ok());
  TM_CHECK(released == 32 * kPage && resource->usage().physical_bytes == 0);
}

TM_TEST("a refusal says what could have been had, wherever the free pages are") {
  for (const std::uint64_t keep : {0ULL, 2ULL, 32ULL}) {
    auto resource = make(host_driver(), 10 * kPage + 1, keep * kPage);
    std::vector<Block> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(allocate(*resource, kPage));
    for (std::size_t i = 0; i < 4; ++i) TM_CHECK(deallocate(*resource, blocks[2 * i]).ok());
    Block none{};
    const Status refused = resource->allocate({.nbytes = 7 * kPage}, &none);
    TM_CHECK(refused.code() == Code::out_of_memory && refused.failure().facts[0] == 7 * kPage);
    TM_CHECK(refused.failure().facts[1] == 6 * kPage && refused.failure().facts[2] == 6 * kPage);
    const Block all = allocate(*resource, 6 * kPage);
    TM_CHECK(deallocate(*resource, all).ok());
    for (std::size_t i = 0; i < 4; ++i) TM_CHECK(deallocate(*resource, blocks[2 * i + 1]).ok());
  }
}

TM_TEST("random blocks keep their bytes and the pages their books, whatever is kept") {
  for (const std::uint64_t keep : {0ULL, 8ULL, 1000ULL}) {
    auto resource = make(host_driver(), LocalBudget::kUnlimited, keep * kPage);
    std::mt19937_64 random(keep + 1);
    std::map<std::uint64_t, std::pair<Block, unsigned char>> live;
    for (int step = 0; step < 600; ++step) {
      if (live.size() < 40 && random() % 3 != 0) {
        const std::uint64_t nbytes = 1 + random() % (random() % 4 == 0 ? 20 * kPage : 3000);
        const Block block = allocate(*resource, nbytes);
        const auto value = static_cast<unsigned char>(random());
        std::memset(bytes_of(block), value, nbytes);
        live.emplace(block.address, std::pair(block, value));
      } else if (!live.empty()) {
        auto at = live.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random() % live.size()));
        const auto& [block, value] = at->second;
        for (std::uint64_t i = 0; i < block.nbytes; i += 997) TM_CHECK(bytes_of(block)[i] == value);
        TM_CHECK(deallocate(*resource, block).ok());
        live.erase(at);
      }
      TM_CHECK(resource->pages_are_valid());
      TM_CHECK(resource->usage().idle_bytes <= keep * kPage);
    }
    for (const auto& [address, entry] : live) TM_CHECK(deallocate(*resource, entry.first).ok());
  }
}

TM_TEST("whichever call of the driver fails, nothing leaks and the next try works") {
  FailingDriver driver;
  for (std::uint64_t nth = 1;; ++nth) {
    auto resource = make(driver, LocalBudget::kUnlimited, 4 * kPage);
    driver.fail_at(nth);
    std::vector<Block> blocks;
    for (const std::uint64_t nbytes : {kPage / 2, 3 * kPage, 10 * kPage + 1}) {
      Block block{};
      if (resource->allocate({.nbytes = nbytes}, &block).ok()) blocks.push_back(block);
      TM_CHECK(resource->pages_are_valid());
    }
    std::vector<Block> refused;
    for (const Block& block : blocks) {
      if (!deallocate(*resource, block).ok()) refused.push_back(block);
      TM_CHECK(resource->pages_are_valid());
    }
    const bool failed = driver.has_failed();
    driver.fail_at(0);
    for (const Block& block : refused) TM_CHECK(deallocate(*resource, block).ok());
    TM_CHECK(resource->reap_pending().ok());
    TM_CHECK(resource->bytes_outstanding() == 0);
    TM_CHECK(deallocate(*resource, allocate(*resource, 20 * kPage)).ok());
    std::uint64_t released = 0;
    TM_CHECK(resource->trim(0, &released).ok());
    TM_CHECK(resource->usage().physical_bytes == 0);
    if (!failed) break;
  }
}

TM_TEST("eight threads share a resource under one limit") {
  auto resource = make(host_driver(), 256 * kPage, 16 * kPage);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int step = 0; step < 200; ++step) {
        Block block{};
        const std::uint64_t nbytes = 1 + random() % (8 * kPage);
        if (!resource->allocate({.nbytes = nbytes}, &block).ok()) continue;
        std::memset(bytes_of(block), static_cast<int>(seed), nbytes);
        TM_CHECK(bytes_of(block)[nbytes - 1] == seed);
        TM_CHECK(deallocate(*resource, block).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(resource->pages_are_valid() && resource->bytes_outstanding() == 0);
  TM_CHECK(resource->usage().peak_physical_bytes <= 256 * kPage);
}

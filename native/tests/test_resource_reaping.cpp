#include "resource/arena_memory_resource.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/pool_memory_resource.hpp"
#include "tests/failing_driver.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr int kBlocks = 4;

using Maker = ResourcePtr (*)(Driver&);

ResourcePtr make_pool(Driver& driver) {
  std::shared_ptr<PoolMemoryResource> pool;
  TM_CHECK(PoolMemoryResource::create(make_leaf(driver), {.initial_bytes = 1 << 20}, &pool).ok());
  return pool;
}

ResourcePtr make_arena(Driver& driver) {
  std::shared_ptr<ArenaMemoryResource> arena;
  TM_CHECK(ArenaMemoryResource::create(make_leaf(driver), 2, &arena).ok());
  return arena;
}

const Maker kMakers[] = {
    [](Driver& driver) -> ResourcePtr { return make_leaf(driver); },
    make_pool,
    make_arena,
    [](Driver& driver) -> ResourcePtr { return std::make_shared<LimitingResourceAdaptor>(make_leaf(driver), 1 << 20); },
};

int count(Resource& resource, const std::vector<Block>& blocks, BlockState state) {
  return static_cast<int>(std::ranges::count_if(blocks, [&](const Block& b) { return resource.state_of(b) == state; }));
}

// Blocks that were given back while `reader` still reads them.
std::vector<Block> retire(Resource& resource, const GatedStream& reader) {
  std::vector<Block> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(allocate(resource, kBytes));
    TM_CHECK(resource.finish_block_use(blocks.back(), reader.id(), Access::read).ok());
    TM_CHECK(deallocate(resource, blocks.back()).ok());
  }
  TM_CHECK(count(resource, blocks, BlockState::retired) == kBlocks);
  return blocks;
}

}  // namespace

TM_TEST("whichever query fails while reaping, it is told and what it did not prove is kept for the next time") {
  for (const Maker make : kMakers) {
    std::uint64_t failures = 0;
    for (std::uint64_t nth = 1; nth <= failures + 1; ++nth) {
      FailingDriver driver;
      const ResourcePtr resource = make(driver);
      GatedStream reader;
      const std::vector<Block> blocks = retire(*resource, reader);
      reader.pass();
      driver.fail_at(nth);
      const Status reaped = resource->reap_pending();
      const bool failed = driver.has_failed();
      driver.fail_at(0);
      TM_CHECK(reaped.ok() != failed);
      const int kept = failed ? 1 : 0;
      TM_CHECK(count(*resource, blocks, BlockState::retired) == kept);
      TM_CHECK(count(*resource, blocks, BlockState::freed) == kBlocks - kept);
      TM_CHECK(resource->bytes_outstanding() == kept * kBytes);
      TM_CHECK(resource->stats().retired_count == static_cast<std::uint64_t>(kept));
      TM_CHECK(resource->reap_pending().ok());
      TM_CHECK(count(*resource, blocks, BlockState::freed) == kBlocks && resource->bytes_outstanding() == 0);
      failures += failed ? 1 : 0;
    }
    TM_CHECK(failures == kBlocks);
  }
}

TM_TEST("a stream that cannot be asked keeps what is pending on it") {
  FailingDriver driver;
  std::shared_ptr<PoolMemoryResource> pool;
  TM_CHECK(
      PoolMemoryResource::create(make_leaf(driver), {.initial_bytes = 1 << 20, .maximum_bytes = 1 << 20}, &pool).ok());
  GatedStream stream;
  const Block block = allocate(*pool, kBytes, stream.id());
  TM_CHECK(deallocate(*pool, block, stream.id()).ok());
  stream.pass();
  driver.fail_at(1);
  TM_CHECK(pool->reap_pending().ok());
  TM_CHECK(driver.has_failed() && pool->usage().pending_bytes == kBytes);
  driver.fail_at(0);
  TM_CHECK(pool->reap_pending().ok());
  TM_CHECK(pool->usage().pending_bytes == 0 && pool->usage().total_free == 1 << 20 && pool->is_valid());
}

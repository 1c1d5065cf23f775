#include <algorithm>
#include <cstring>
#include <random>

#include "resource/arena_memory_resource.hpp"
#include "resource/binning_memory_resource.hpp"
#include "resource/fault_injection_resource_adaptor.hpp"
#include "resource/pool_memory_resource.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

std::shared_ptr<PoolMemoryResource> make_pool(const PoolOptions& options = {}, ResourcePtr upstream = make_leaf()) {
  std::shared_ptr<PoolMemoryResource> pool;
  TM_CHECK(PoolMemoryResource::create(std::move(upstream), options, &pool).ok());
  return pool;
}

PoolOptions fixed(std::uint64_t bytes) { return {.initial_bytes = bytes, .maximum_bytes = bytes}; }

}  // namespace

TM_TEST("blocks of a pool never overlap and everything coalesces again") {
  auto pool = make_pool(fixed(64 * kMiB));
  std::mt19937_64 random(7);
  std::vector<Block> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() < 400 && random() % 5 < 3) {
      const std::uint64_t nbytes = 1 + random() % (1ULL << (random() % 17));
      live.push_back(allocate(*pool, nbytes));
      std::memset(bytes_of(live.back()), static_cast<int>(live.back().generation), nbytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Block block = live.back();
      live.pop_back();
      const auto stamp = static_cast<unsigned char>(block.generation);
      TM_CHECK(std::all_of(bytes_of(block), bytes_of(block) + block.nbytes, [=](auto byte) { return byte == stamp; }));
      TM_CHECK(deallocate(*pool, block).ok());
    }
    if (step % 1000 == 0) TM_CHECK(pool->is_valid());
  }
  for (const Block& block : live) TM_CHECK(deallocate(*pool, block).ok());
  const PoolUsage usage = pool->usage();
  TM_CHECK(usage.total_free == 64 * kMiB && usage.largest_free == 64 * kMiB && usage.fragmentation() == 0.0);
  TM_CHECK(pool->is_valid() && pool->bytes_outstanding() == 0);
}

TM_TEST("a parked range is handed out again, and a stale block does not free the heir") {
  auto pool = make_pool(fixed(kMiB));
  const Block first = allocate(*pool, 1000);
  TM_CHECK(deallocate(*pool, first).ok());
  TM_CHECK(deallocate(*pool, first).code() == Code::use_after_free);
  const Block heir = allocate(*pool, 1000);
  TM_CHECK(heir.address == first.address && heir.generation != first.generation);
  TM_CHECK(deallocate(*pool, first).code() == Code::use_after_free);
  TM_CHECK(pool->state_of(heir) == BlockState::live && pool->state_of(first) == BlockState::freed);
  TM_CHECK(deallocate(*pool, heir).ok());
}

TM_TEST("parked ranges never make a pool fail or grow") {
  auto pool = make_pool(fixed(kMiB));
  std::vector<Block> small;
  for (int i = 1; i <= 40; ++i) small.push_back(allocate(*pool, static_cast<std::uint64_t>(i) * 512));
  for (const Block& block : small) TM_CHECK(deallocate(*pool, block).ok());
  const Block whole = allocate(*pool, kMiB);
  TM_CHECK(deallocate(*pool, whole).ok());
}

TM_TEST("out of memory tells what is free and how large the largest piece is") {
  auto pool = make_pool(fixed(kMiB));
  const Block a = allocate(*pool, 256 * 1024);
  const Block b = allocate(*pool, 256 * 1024);
  TM_CHECK(deallocate(*pool, a).ok());
  Block block{};
  const Status refused = pool->allocate({.nbytes = 700 * 1024}, &block);
  TM_CHECK(refused.code() == Code::out_of_memory);
  TM_CHECK(refused.failure().facts[0] == 700 * 1024);
  TM_CHECK(refused.failure().facts[1] == 768 * 1024);
  TM_CHECK(refused.failure().facts[2] == 512 * 1024);
  TM_CHECK(deallocate(*pool, b).ok());
}

TM_TEST("a block of a busy stream is reused on that stream at once and on no other before it has passed") {
  auto pool = make_pool(fixed(2 * kMiB));
  GatedStream busy;
  const Block block = allocate(*pool, kMiB, busy.id());
  TM_CHECK(deallocate(*pool, block, busy.id()).ok());
  TM_CHECK(pool->usage().pending_bytes == kMiB);
  const Block elsewhere = allocate(*pool, kMiB);
  TM_CHECK(elsewhere.address != block.address);
  const Block again = allocate(*pool, kMiB, busy.id());
  TM_CHECK(again.address == block.address);
  TM_CHECK(deallocate(*pool, again, busy.id()).ok());
  busy.pass();
  TM_CHECK(pool->reap_pending().ok());
  TM_CHECK(pool->usage().pending_bytes == 0 && pool->usage().total_free == kMiB);
  TM_CHECK(deallocate(*pool, elsewhere).ok());
  TM_CHECK(pool->is_valid());
}

TM_TEST("pending neighbours of one stream coalesce, and are cut again") {
  auto pool = make_pool(fixed(4 * kMiB));
  GatedStream busy;
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(*pool, kMiB, busy.id()));
  for (const int i : {2, 0, 3, 1}) TM_CHECK(deallocate(*pool, blocks[static_cast<std::size_t>(i)], busy.id()).ok());
  const Block whole = allocate(*pool, 4 * kMiB, busy.id());
  TM_CHECK(deallocate(*pool, whole, busy.id()).ok());
  const Block part = allocate(*pool, 3 * kMiB / 2, busy.id());
  TM_CHECK(pool->usage().pending_bytes == 5 * kMiB / 2);
  TM_CHECK(deallocate(*pool, part, busy.id()).ok());
  busy.pass();
  TM_CHECK(pool->reap_pending().ok());
  TM_CHECK(pool->usage().largest_free == 4 * kMiB && pool->is_valid());
}

TM_TEST(
    "a stream gets the range of the size it gave back last, and neighbours of other sizes join when more is asked") {
  auto pool = make_pool(fixed(3 * kMiB));
  GatedStream busy;
  const Block small = allocate(*pool, kMiB, busy.id());
  const Block large = allocate(*pool, 2 * kMiB, busy.id());
  for (const Block* block : {&small, &large}) TM_CHECK(deallocate(*pool, *block, busy.id()).ok());
  TM_CHECK(pool->usage().pending_bytes == 3 * kMiB && pool->is_valid());
  const Block again = allocate(*pool, kMiB, busy.id());
  TM_CHECK(again.address == small.address && pool->usage().pending_bytes == 2 * kMiB);
  TM_CHECK(deallocate(*pool, again, busy.id()).ok());
  const Block whole = allocate(*pool, 3 * kMiB, busy.id());
  TM_CHECK(whole.address == small.address && pool->usage().pending_bytes == 0);
  TM_CHECK(deallocate(*pool, whole, busy.id()).ok());
  busy.pass();
  TM_CHECK(pool->reap_pending().ok());
  TM_CHECK(pool->usage().largest_free == 3 * kMiB && pool->is_valid());
}

TM_TEST("a full pool takes another stream's pending range, behind an event of that stream") {
  auto pool = make_pool(fixed(kMiB));
  GatedStream first;
  StreamId second = 0;
  TM_CHECK(host_driver().stream_create(0, &second).ok());
  const Block block = allocate(*pool, kMiB, first.id());
  std::atomic<int> order{0};
  struct Step {
    std::atomic<int>* order;
    int at = 0;
    static void take(void* self) {
      auto* step = static_cast<Step*>(self);
      step->at = ++*step->order;
    }
  };
  Step before{&order};
  Step after{&order};
  TM_CHECK(host_driver().launch_host(&Step::take, &before, first.id()).ok());
  TM_CHECK(deallocate(*pool, block, first.id()).ok());
  const Block stolen = allocate(*pool, kMiB, second);
  TM_CHECK(stolen.address == block.address);
  TM_CHECK(host_driver().launch_host(&Step::take, &after, second).ok());
  first.open();
  TM_CHECK(host_driver().stream_synchronize(second).ok());
  TM_CHECK(before.at == 1 && after.at == 2);
  TM_CHECK(deallocate(*pool, stolen, second).ok());
  TM_CHECK(host_driver().stream_destroy(second).ok());
}

TM_TEST("freeing inline a block that another stream still reads retires it until that stream has passed") {
  auto pool = make_pool(fixed(kMiB));
  GatedStream reader;
  const Block block = allocate(*pool, kMiB);
  TM_CHECK(pool->finish_block_use(block, reader.id(), Access::read).ok());
  TM_CHECK(deallocate(*pool, block).ok());
  TM_CHECK(pool->state_of(block) == BlockState::retired && pool->bytes_outstanding() == kMiB);
  TM_CHECK(deallocate(*pool, block).code() == Code::use_after_free);
  TM_CHECK(pool->reap_pending().ok());
  TM_CHECK(pool->state_of(block) == BlockState::retired);
  reader.pass();
  const Block heir = allocate(*pool, kMiB);  // looking for room reaps
  TM_CHECK(heir.address == block.address && pool->state_of(block) == BlockState::freed);
  TM_CHECK(deallocate(*pool, heir).ok());
  TM_CHECK(pool->is_valid());
}

TM_TEST("a stream that is never idle passes markers, and its old ranges become free for everyone") {
  auto pool = make_pool(fixed(2 * kMiB));
  auto first = std::make_unique<GatedStream>();
  const Block block = allocate(*pool, kMiB, first->id());
  TM_CHECK(deallocate(*pool, block, first->id()).ok());
  TM_CHECK(pool->reap_pending().ok());  // leaves a marker behind the block
  GatedStream gate_two;
  EventHandle hold = nullptr;
  TM_CHECK(host_driver().event_create(0, &hold).ok());
  TM_CHECK(host_driver().event_record(hold, gate_two.id()).ok());
  TM_CHECK(host_driver().stream_wait_event(first->id(), hold).ok());  // keeps the stream busy behind the marker
  first->open();
  for (int tries = 0; tries < 100000 && pool->usage().total_free < 2 * kMiB; ++tries) {
    TM_CHECK(pool->reap_pending().ok());
    std::this_thread::yield();
  }
  TM_CHECK(pool->usage().total_free == 2 * kMiB);
  gate_two.open();
  first.reset();
  TM_CHECK(host_driver().event_destroy(hold).ok());
}

TM_TEST("empty chunks go back on trim and, above the threshold, by themselves") {
  auto leaf = make_leaf();
  auto keeps = make_pool({}, leaf);
  const Block block = allocate(*keeps, 8 * kMiB);
  TM_CHECK(deallocate(*keeps, block).ok());
  TM_CHECK(leaf->bytes_outstanding() >= 8 * kMiB);
  std::uint64_t released = 0;
  TM_CHECK(keeps->trim(0, &released).ok());
  TM_CHECK(released >= 8 * kMiB && leaf->bytes_outstanding() == 0);

  auto lean = make_pool({.release_threshold = 0}, leaf);
  const Block other = allocate(*lean, 8 * kMiB);
  TM_CHECK(deallocate(*lean, other).ok());
  TM_CHECK(leaf->bytes_outstanding() == 0);
}

TM_TEST("for every k, the k-th upstream allocation fails and every counter still adds up") {
  for (std::uint64_t k = 1; k <= 6; ++k) {
    auto leaf = make_leaf();
    {
      auto faulty = std::make_shared<FaultInjectionResourceAdaptor>(leaf, FaultInjectionPlan{.nth = k});
      auto pool = make_pool({}, faulty);
      std::vector<Block> live;
      for (int i = 0; i < 12; ++i) {
        Block block{};
        if (pool->allocate({.nbytes = 3 * kMiB}, &block).ok()) live.push_back(block);
        TM_CHECK(pool->bytes_outstanding() == live.size() * 3 * kMiB);
      }
      TM_CHECK(live.size() >= 11 && pool->is_valid());
      for (const Block& block : live) TM_CHECK(deallocate(*pool, block).ok());
    }
    TM_CHECK(leaf->bytes_outstanding() == 0);
  }
}

TM_TEST("blocks of one size never fragment, and larger ones are refused with the largest that fits") {
  auto pool = make_pool({.block_bytes = 1000, .chunk_bytes = 16 * 1024});
  std::vector<Block> live;
  for (int i = 0; i < 100; ++i) live.push_back(allocate(*pool, 1 + static_cast<std::uint64_t>(i) * 9));
  Block block{};
  const Status refused = pool->allocate({.nbytes = 1001}, &block);
  TM_CHECK(refused.code() == Code::out_of_memory && refused.failure().facts[2] == 1000);
  for (const Block& each : live) TM_CHECK(deallocate(*pool, each).ok());
  TM_CHECK(pool->is_valid() && pool->bytes_outstanding() == 0);
}

TM_TEST("bins are chosen by size, and cannot change while blocks are out") {
  auto leaf = make_leaf();
  BinningMemoryResource bins(leaf);
  auto small = make_pool({.block_bytes = 1024, .chunk_bytes = 64 * 1024}, leaf);
  TM_CHECK(bins.add_bin(1024, small).ok());
  TM_CHECK(bins.add_bin(1024, small).code() == Code::invalid_size);
  const Block in_bin = allocate(bins, 1000);
  const Block beyond = allocate(bins, 5000);
  TM_CHECK(small->bytes_outstanding() == 1000 && bins.bytes_outstanding() == 6000);
  TM_CHECK(bins.add_bin(2048, small).code() == Code::invalid_argument);
  TM_CHECK(deallocate(bins, in_bin).ok() && deallocate(bins, beyond).ok());
  TM_CHECK(bins.bytes_outstanding() == 0 && small->bytes_outstanding() == 0);
}

TM_TEST("eight threads share a pool and an arena, with streams and uses, and everything comes back") {
  auto leaf = make_leaf();
  auto pool = make_pool({}, leaf);
  std::shared_ptr<ArenaMemoryResource> arena;
  TM_CHECK(ArenaMemoryResource::create(leaf, 4, &arena).ok());
  for (Resource* resource : {static_cast<Resource*>(pool.get()), static_cast<Resource*>(arena.get())}) {
    on_threads(8, [resource](int number) {
      std::mt19937 random(static_cast<unsigned>(number));
      StreamId stream = 0;
      TM_CHECK(host_driver().stream_create(0, &stream).ok());
      std::vector<Block> live;
      for (int step = 0; step < 1500; ++step) {
        const StreamId on = random() % 4 == 0 ? stream : kDefaultStream;
        live.push_back(allocate(*resource, 1 + random() % 20000, on));
        if (random() % 8 == 0) TM_CHECK(resource->finish_block_use(live.back(), stream, Access::write).ok());
        if (live.size() > 16) {
          std::swap(live[random() % live.size()], live.back());
          TM_CHECK(deallocate(*resource, live.back(), random() % 4 == 0 ? stream : kDefaultStream).ok());
          live.pop_back();
        }
        if (step % 200 == 0) TM_CHECK(resource->reap_pending().ok());
      }
      for (const Block& block : live) TM_CHECK(deallocate(*resource, block).ok());
      TM_CHECK(host_driver().stream_destroy(stream).ok());
    });
    TM_CHECK(resource->reap_pending().ok());
    TM_CHECK(resource->bytes_outstanding() == 0);
    TM_CHECK(resource->stats().total_count == 8 * 1500);
  }
  TM_CHECK(pool->is_valid());
}

TM_TEST("an inline caller does not wait for ever, and waits for the first room rather than for all of it") {
  auto pool = make_pool({.initial_bytes = kMiB, .maximum_bytes = kMiB, .pending_timeout_ns = 1'000'000});
  GatedStream stuck;
  GatedStream busy;
  const Block lost = allocate(*pool, kMiB / 2, stuck.id());
  const Block found = allocate(*pool, kMiB / 2, busy.id());
  TM_CHECK(deallocate(*pool, lost, stuck.id()).ok() && deallocate(*pool, found, busy.id()).ok());
  TM_CHECK(try_allocate(*pool, kMiB / 2) == Code::out_of_memory);
  busy.pass();
  const Block heir = allocate(*pool, kMiB / 2);
  TM_CHECK(heir.address == found.address);
  TM_CHECK(deallocate(*pool, heir).ok());
  TM_CHECK(pool->is_valid());
}

TM_TEST("threads that make a pool grow at once all get what they asked for, when it is just enough") {
  for (int round = 0; round < 50; ++round) {
    auto pool = make_pool({.initial_bytes = kMiB, .maximum_bytes = 8 * kMiB});
    std::atomic<int> refused{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] { refused += try_allocate(*pool, kMiB) == Code::ok ? 0 : 1; });
      }
    }
    TM_CHECK(refused == 0 && pool->usage().total_free == 0 && pool->is_valid());
  }
}

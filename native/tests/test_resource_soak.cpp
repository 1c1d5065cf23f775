// A whole stack under eight threads, for as long as TENSORMEM_SOAK_SECONDS says (1 unless told). What it looks for
// shows under a sanitizer; without one it still checks that everything comes back.
#include <chrono>
#include <cstdlib>
#include <random>

#include "resource/arena_memory_resource.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/logging_resource_adaptor.hpp"
#include "resource/ring_log_sink.hpp"
#include "resource/statistics_resource_adaptor.hpp"
#include "resource/tracking_resource_adaptor.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

std::chrono::seconds soak_time() {
  const char* text = std::getenv("TENSORMEM_SOAK_SECONDS");
  return std::chrono::seconds(text == nullptr ? 1 : std::atoi(text));
}

ResourcePtr stack_over(ResourcePtr bottom) {
  std::shared_ptr<RingLogSink> ring;
  TM_CHECK(RingLogSink::make(1024, &ring).ok());
  bottom = std::make_shared<LimitingResourceAdaptor>(std::move(bottom), 1ULL << 30);
  bottom = std::make_shared<TrackingResourceAdaptor>(std::move(bottom));
  bottom = std::make_shared<LoggingResourceAdaptor>(std::move(bottom), ring);
  return std::make_shared<StatisticsResourceAdaptor>(std::move(bottom));
}

void churn(Resource& resource, unsigned seed, std::chrono::steady_clock::time_point until) {
  std::mt19937 random(seed);
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  std::vector<Block> live;
  while (std::chrono::steady_clock::now() < until) {
    live.push_back(allocate(resource, 1 + random() % 50000, random() % 4 == 0 ? stream : kDefaultStream));
    if (random() % 8 == 0) {
      TM_CHECK(resource.prepare_block_use(live.back(), stream, Access::write).ok());
      TM_CHECK(resource.finish_block_use(live.back(), stream, Access::write).ok());
    }
    if (live.size() > 24) {
      std::swap(live[random() % live.size()], live.back());
      TM_CHECK(deallocate(resource, live.back(), random() % 4 == 0 ? stream : kDefaultStream).ok());
      live.pop_back();
    }
    if (random() % 256 == 0) TM_CHECK(resource.reap_pending().ok());
  }
  for (const Block& block : live) TM_CHECK(deallocate(resource, block).ok());
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

}  // namespace

TM_TEST("eight threads churn a whole stack over a pool and over an arena, and everything comes back") {
  auto leaf = make_leaf();
  std::shared_ptr<PoolMemoryResource> pool;
  std::shared_ptr<ArenaMemoryResource> arena;
  TM_CHECK(PoolMemoryResource::create(leaf, {}, &pool).ok());
  TM_CHECK(ArenaMemoryResource::create(leaf, 4, &arena).ok());
  for (const ResourcePtr& bottom : {ResourcePtr(pool), ResourcePtr(arena)}) {
    const ResourcePtr stack = stack_over(bottom);
    const auto until = std::chrono::steady_clock::now() + soak_time() / 2 + std::chrono::milliseconds(200);
    on_threads(8, [&](int number) { churn(*stack, static_cast<unsigned>(number), until); });
    TM_CHECK(stack->reap_pending().ok());
    TM_CHECK(stack->bytes_outstanding() == 0);
  }
  TM_CHECK(pool->is_valid());
}

#include <atomic>
#include <vector>

#include "resource/fault_injection_resource_adaptor.hpp"
#include "resource/tracking_resource_adaptor.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

// Stacks that count how many of them exist.
std::atomic<int> g_stacks{0};

struct Stack {
  int number;
};

void* capture() { return new Stack{++g_stacks}; }
void drop(void* stack) {
  --g_stacks;
  delete static_cast<Stack*>(stack);
}
StackHooks counting_hooks() { return {.capture = &capture, .drop = &drop}; }

std::vector<std::uint64_t> sizes(const TrackingResourceAdaptor& tracking, TrackedOrder order) {
  std::vector<TrackedBlock> blocks;
  tracking.outstanding(order, &blocks);
  std::vector<std::uint64_t> found;
  for (const TrackedBlock& each : blocks) found.push_back(each.block.nbytes);
  return found;
}

}  // namespace

TM_TEST("what is outstanding is listed by size or by age") {
  TrackingResourceAdaptor tracking(make_leaf());
  const Block one = allocate(tracking, 20);
  const Block two = allocate(tracking, 30);
  const Block three = allocate(tracking, 10);
  TM_CHECK((sizes(tracking, TrackedOrder::largest_first) == std::vector<std::uint64_t>{30, 20, 10}));
  TM_CHECK((sizes(tracking, TrackedOrder::oldest_first) == std::vector<std::uint64_t>{20, 30, 10}));
  TM_CHECK(tracking.outstanding_bytes() == 60 && tracking.outstanding_count() == 3);
  TM_CHECK(deallocate(tracking, two).ok());
  TM_CHECK((sizes(tracking, TrackedOrder::largest_first) == std::vector<std::uint64_t>{20, 10}));
  std::vector<TrackedBlock> blocks;
  tracking.outstanding(TrackedOrder::oldest_first, &blocks);
  TM_CHECK(blocks[0].block.generation == one.generation && blocks[0].block.address == one.address);
  TM_CHECK(blocks[0].timestamp_ns > 0 && blocks[0].timestamp_ns <= blocks[1].timestamp_ns &&
           blocks[0].stack == nullptr);
  TM_CHECK(deallocate(tracking, one).ok() && deallocate(tracking, three).ok());
  TM_CHECK(tracking.outstanding_bytes() == 0 && tracking.is_valid());
}

TM_TEST("totals by tag come with the largest first") {
  TrackingResourceAdaptor tracking(make_leaf());
  const TagId weights = intern_tag("weights");
  const TagId cache = intern_tag("cache");
  std::vector<Block> blocks{allocate(tracking, 100, kDefaultStream, weights),
                            allocate(tracking, 30, kDefaultStream, cache),
                            allocate(tracking, 40, kDefaultStream, cache), allocate(tracking, 5)};
  std::vector<TagTotal> totals;
  tracking.totals_by_tag(&totals);
  TM_CHECK(totals.size() == 3);
  TM_CHECK(totals[0].tag == weights && totals[0].nbytes == 100 && totals[0].count == 1);
  TM_CHECK(totals[1].tag == cache && totals[1].nbytes == 70 && totals[1].count == 2);
  TM_CHECK(totals[2].tag == kUntagged && totals[2].nbytes == 5);
  for (const Block& block : blocks) TM_CHECK(deallocate(tracking, block).ok());
  tracking.totals_by_tag(&totals);
  TM_CHECK(totals.empty());
}

TM_TEST("each stack is captured once and dropped once, also by the end of the adaptor") {
  TM_CHECK(g_stacks == 0);
  auto leaf = make_leaf();
  std::vector<TrackedBlock> blocks;
  Block leaked{};
  {
    TrackingResourceAdaptor tracking(leaf, counting_hooks());
    const Block one = allocate(tracking, 10);
    leaked = allocate(tracking, 20);
    TM_CHECK(g_stacks == 2);
    TM_CHECK(deallocate(tracking, one).ok());
    TM_CHECK(g_stacks == 1);
    tracking.outstanding(TrackedOrder::largest_first, &blocks);
    TM_CHECK(blocks.size() == 1 && static_cast<Stack*>(blocks[0].stack.get())->number == 2);
  }
  TM_CHECK(g_stacks == 1);  // the report still holds it
  blocks.clear();
  TM_CHECK(g_stacks == 0);
  TM_CHECK(deallocate(*leaf, leaked).ok());
}

TM_TEST("a block with no stack is tracked all the same") {
  TrackingResourceAdaptor tracking(make_leaf(), {.capture = [] { return nullptr; }, .drop = nullptr});
  const Block block = allocate(tracking, 10);
  TM_CHECK(tracking.outstanding_count() == 1);
  TM_CHECK(deallocate(tracking, block).ok());
}

TM_TEST("failures capture nothing, and a refused free forgets nothing") {
  auto faulty = std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.nth = 1});
  TrackingResourceAdaptor tracking(faulty, counting_hooks());
  TM_CHECK(try_allocate(tracking, 10) == Code::out_of_memory);
  TM_CHECK(g_stacks == 0 && tracking.outstanding_count() == 0);
  const Block block = allocate(tracking, 10);
  TM_CHECK(deallocate(tracking, block, 12345).code() == Code::stream_misuse);
  TM_CHECK(g_stacks == 1 && tracking.outstanding_count() == 1);
  TM_CHECK(deallocate(tracking, block).ok());
  TM_CHECK(deallocate(tracking, block).code() == Code::use_after_free);
  TM_CHECK(g_stacks == 0 && tracking.outstanding_bytes() == 0);
}

TM_TEST("a retired block is not outstanding: its owner gave it back") {
  TrackingResourceAdaptor tracking(make_leaf());
  GatedStream stream;
  const Block block = allocate(tracking, 10, stream.id());
  TM_CHECK(deallocate(tracking, block, stream.id()).ok());
  TM_CHECK(tracking.outstanding_count() == 0 && tracking.bytes_outstanding() == 10);
  stream.pass();
  TM_CHECK(tracking.reap_pending().ok());
  TM_CHECK(tracking.bytes_outstanding() == 0);
}

TM_TEST("hooks may call the adaptor, because it holds no lock then") {
  TrackingResourceAdaptor* self = nullptr;
  StackHooks hooks{.capture = [&]() -> void* {
                     (void)self->outstanding_count();
                     return capture();
                   },
                   .drop = &drop};
  TrackingResourceAdaptor tracking(make_leaf(), hooks);
  self = &tracking;
  TM_CHECK(deallocate(tracking, allocate(tracking, 10)).ok());
  TM_CHECK(g_stacks == 0);
}

TM_TEST("eight threads allocate, free and look, and everything adds up") {
  auto leaf = make_leaf();
  TrackingResourceAdaptor tracking(leaf, counting_hooks());
  on_threads(8, [&](int number) {
    std::vector<Block> held;
    std::vector<TrackedBlock> seen;
    for (int i = 0; i < 200; ++i) {
      held.push_back(allocate(tracking, static_cast<std::uint64_t>(1 + number * 13 + i)));
      if (i % 50 == 0) tracking.outstanding(TrackedOrder::largest_first, &seen);
      if (held.size() < 5) continue;
      TM_CHECK(deallocate(tracking, held.back()).ok());
      held.pop_back();
    }
    for (const Block& block : held) TM_CHECK(deallocate(tracking, block).ok());
  });
  TM_CHECK(tracking.outstanding_bytes() == 0 && tracking.outstanding_count() == 0 && g_stacks == 0);
  TM_CHECK(tracking.is_valid() && leaf->stats().total_count == 1600);
}

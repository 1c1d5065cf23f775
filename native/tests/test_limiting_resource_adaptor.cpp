#include "resource/fault_injection_resource_adaptor.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

TM_TEST("the limit is exact: all of it can be had, and not one byte more") {
  auto leaf = make_leaf();
  LimitingResourceAdaptor limited(leaf, 1000);
  const Block most = allocate(limited, 999);
  const Block last = allocate(limited, 1);
  Block block{};
  const Status refused = limited.allocate({.nbytes = 1}, &block);
  TM_CHECK(refused.code() == Code::out_of_budget);
  TM_CHECK((refused.failure().facts == std::array<std::uint64_t, 4>{1, 1000, 0, 1000}));
  TM_CHECK(deallocate(limited, last).ok());
  TM_CHECK(limited.bytes_outstanding() == 999);
  TM_CHECK(deallocate(limited, most).ok());
  TM_CHECK(limited.charged() == 0);
}

TM_TEST("more than the limit at once is refused without touching the upstream") {
  auto leaf = make_leaf();
  LimitingResourceAdaptor limited(leaf, 1000);
  TM_CHECK(try_allocate(limited, 1001) == Code::out_of_budget);
  TM_CHECK(leaf->stats().total_count == 0 && limited.charged() == 0);
}

TM_TEST("a wrong request is refused before it is charged") {
  LimitingResourceAdaptor limited(make_leaf(), 1000);
  TM_CHECK(try_allocate(limited, 0) == Code::invalid_size);
  TM_CHECK(try_allocate(limited, ~0ULL) == Code::invalid_size);
  Block block{};
  TM_CHECK(limited.allocate({.nbytes = 1, .alignment = 3}, &block).code() == Code::invalid_alignment);
  TM_CHECK(limited.charged() == 0);
}

TM_TEST("eight threads never go over the limit and leave nothing charged") {
  constexpr std::uint64_t kLimit = 16 * 4096;
  auto leaf = make_leaf();
  LimitingResourceAdaptor limited(leaf, kLimit);
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> got{0};
  on_threads(8, [&](int number) {
    std::vector<Block> mine;
    for (int i = 0; i < 500; ++i) {
      const auto nbytes = static_cast<std::uint64_t>(1 + (number * 7919 + i * 104729) % 8000);
      Block block{};
      const Status taken = limited.allocate({.nbytes = nbytes}, &block);
      if (taken.ok()) {
        TM_CHECK(held.fetch_add(nbytes) + nbytes <= kLimit);
        got.fetch_add(1);
        mine.push_back(block);
      } else {
        TM_CHECK(taken.code() == Code::out_of_budget);
      }
      if (mine.size() > 3 || !taken.ok()) {
        for (const Block& each : mine) {
          held.fetch_sub(each.nbytes);
          TM_CHECK(deallocate(limited, each).ok());
        }
        mine.clear();
      }
    }
    for (const Block& each : mine) {
      held.fetch_sub(each.nbytes);
      TM_CHECK(deallocate(limited, each).ok());
    }
  });
  TM_CHECK(limited.charged() == 0 && limited.bytes_outstanding() == 0 && leaf->bytes_outstanding() == 0);
  TM_CHECK(leaf->stats().total_count == got.load());
}

TM_TEST("a limit lowered below the use refuses until enough has come back") {
  LimitingResourceAdaptor limited(make_leaf(), 1000);
  const Block one = allocate(limited, 600);
  const Block two = allocate(limited, 300);
  limited.set_limit(500);
  Block block{};
  const Status refused = limited.allocate({.nbytes = 1}, &block);
  TM_CHECK((refused.failure().facts == std::array<std::uint64_t, 4>{1, 900, 0, 500}));
  TM_CHECK(deallocate(limited, two).ok());
  TM_CHECK(try_allocate(limited, 1) == Code::out_of_budget);
  TM_CHECK(deallocate(limited, one).ok());
  const Block three = allocate(limited, 500);
  TM_CHECK(try_allocate(limited, 1) == Code::out_of_budget);
  limited.set_limit(501);
  const Block four = allocate(limited, 1);
  TM_CHECK(deallocate(limited, three).ok() && deallocate(limited, four).ok());
  TM_CHECK(limited.charged() == 0);
}

TM_TEST("a retired block stays charged until it is reaped, and no room means reap and try again") {
  LimitingResourceAdaptor limited(make_leaf(), 4096);
  GatedStream stream;
  const Block block = allocate(limited, 4096, stream.id());
  BlockState end{};
  TM_CHECK(limited.deallocate(block, stream.id(), &end).ok());
  TM_CHECK(end == BlockState::retired && limited.bytes_outstanding() == 4096);
  TM_CHECK(try_allocate(limited, 1) == Code::out_of_budget);
  stream.pass();
  const Block heir = allocate(limited, 4096);  // reaps by itself
  TM_CHECK(deallocate(limited, heir).ok());
  TM_CHECK(limited.charged() == 0);
}

TM_TEST("a failed upstream gives the charge back") {
  auto faulty = std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.every = 2});
  LimitingResourceAdaptor limited(faulty, 1000);
  const Block block = allocate(limited, 400);
  TM_CHECK(try_allocate(limited, 400) == Code::out_of_memory);
  TM_CHECK(limited.charged() == 400);
  TM_CHECK(deallocate(limited, block).ok());
  TM_CHECK(limited.charged() == 0);
}

TM_TEST("a double free does not lower the charge") {
  LimitingResourceAdaptor limited(make_leaf(), 1000);
  const Block one = allocate(limited, 100);
  const Block two = allocate(limited, 100);
  TM_CHECK(deallocate(limited, one).ok());
  TM_CHECK(deallocate(limited, one).code() == Code::use_after_free);
  TM_CHECK(limited.charged() == 100);
  TM_CHECK(deallocate(limited, two).ok());
}

TM_TEST("a promise is room that others cannot take") {
  LimitingResourceAdaptor limited(make_leaf(), 1000);
  TM_CHECK(limited.promise(600).ok());
  TM_CHECK(limited.promised() == 600 && limited.charged() == 600 && limited.bytes_outstanding() == 0);
  TM_CHECK(try_allocate(limited, 401) == Code::out_of_budget);
  Block drawn{};
  TM_CHECK(limited.allocate_promised({.nbytes = 250}, &drawn).ok());
  TM_CHECK(limited.promised() == 350 && limited.charged() == 600 && limited.bytes_outstanding() == 250);
  limited.withdraw_promise(350);
  TM_CHECK(limited.promised() == 0 && limited.charged() == 250);
  TM_CHECK(deallocate(limited, drawn).ok());
  TM_CHECK(limited.charged() == 0);
}

TM_TEST("no more than the promise can be drawn or withdrawn") {
  auto leaf = make_leaf();
  LimitingResourceAdaptor limited(leaf, 1000);
  TM_CHECK(limited.promise(0).code() == Code::invalid_size);
  TM_CHECK(limited.promise(1001).code() == Code::out_of_budget);
  TM_CHECK(limited.promise(100).ok());
  Block block{};
  TM_CHECK(limited.allocate_promised({.nbytes = 101}, &block).code() == Code::out_of_budget);
  TM_CHECK(limited.promised() == 100 && leaf->stats().total_count == 0);
  limited.withdraw_promise(5000);
  TM_CHECK(limited.promised() == 0 && limited.charged() == 0);
}

TM_TEST("a promised allocation that fails stays promised") {
  auto faulty = std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.nth = 1});
  LimitingResourceAdaptor limited(faulty, 1000);
  TM_CHECK(limited.promise(500).ok());
  Block block{};
  TM_CHECK(limited.allocate_promised({.nbytes = 200}, &block).code() == Code::out_of_memory);
  TM_CHECK(limited.promised() == 500 && limited.charged() == 500);
  TM_CHECK(limited.allocate_promised({.nbytes = 200}, &block).ok());
  limited.withdraw_promise(300);
  TM_CHECK(deallocate(limited, block).ok());
  TM_CHECK(limited.charged() == 0 && limited.promised() == 0);
}

TM_TEST("eight threads draw from one promise and it is never overdrawn") {
  LimitingResourceAdaptor limited(make_leaf(), 1 << 20);
  TM_CHECK(limited.promise(100 * 64).ok());
  std::atomic<int> drawn{0};
  on_threads(8, [&](int) {
    for (int i = 0; i < 50; ++i) {
      Block block{};
      const Status taken = limited.allocate_promised({.nbytes = 64}, &block);
      TM_CHECK(taken.ok() || taken.code() == Code::out_of_budget);
      if (!taken.ok()) continue;
      drawn.fetch_add(1);
      TM_CHECK(deallocate(limited, block).ok());
    }
  });
  TM_CHECK(drawn.load() == 100);
  TM_CHECK(limited.charged() == 0 && limited.promised() == 0);
}

#include <cstring>
#include <vector>

#include "resource/debug_guard_resource_adaptor.hpp"
#include "resource/foreign_resource_adaptor.hpp"
#include "tests/failing_driver.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

using Findings = std::vector<GuardFinding>;

DebugGuardOptions options(bool host_accessible, std::uint64_t quarantine_bytes = 1 << 20) {
  return {.host_accessible = host_accessible, .quarantine_bytes = quarantine_bytes};
}

Findings check_all(DebugGuardResourceAdaptor& guard) {
  Findings findings;
  TM_CHECK(guard.check_all(&findings).ok());
  return findings;
}

void write_behind(void* end) { *static_cast<unsigned char*>(end) = 0; }

}  // namespace

TM_TEST("damage done by a stream is found when the stream has passed, and told by the reap") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    GatedStream stream;
    const Block block = allocate(guard, 100, stream.id());
    TM_CHECK(host_driver().launch_host(&write_behind, bytes_of(block) + 100, stream.id()).ok());
    BlockState end{};
    TM_CHECK(guard.deallocate(block, stream.id(), &end).ok());
    TM_CHECK(end == BlockState::retired && guard.bytes_outstanding() == 100 && guard.stats().retired_count == 1);
    TM_CHECK(guard.reap_pending().ok() && check_all(guard).empty());
    TM_CHECK(deallocate(guard, block).code() == Code::use_after_free);
    stream.pass();
    const Status told = guard.reap_pending();
    TM_CHECK(told.code() == Code::out_of_bounds && told.failure().facts[2] == 100);
    TM_CHECK(guard.state_of(block) == BlockState::quarantined && guard.bytes_outstanding() == 0 && guard.is_valid());
    TM_CHECK(guard.reap_pending().ok() && check_all(guard).empty());
  }
}

TM_TEST("damage found because memory ran short is kept for the next check") {
  DebugGuardResourceAdaptor guard(make_leaf(), options(true));
  GatedStream stream;
  const Block block = allocate(guard, 100, stream.id());
  TM_CHECK(host_driver().launch_host(&write_behind, bytes_of(block) + 100, stream.id()).ok());
  TM_CHECK(deallocate(guard, block, stream.id()).ok());
  stream.pass();
  TM_CHECK(try_allocate(guard, 1ULL << 60) == Code::out_of_memory);
  const Findings untold = check_all(guard);
  TM_CHECK(untold.size() == 1 && untold[0].kind == GuardDamageKind::overflow && untold[0].damage.offset == 100);
}

TM_TEST("on a busy stream the paint waits its turn, and a check before that finds nothing wrong") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    GatedStream stream;
    const Block block = allocate(guard, 100, stream.id());
    TM_CHECK(check_all(guard).empty());
    stream.pass();
    TM_CHECK(bytes_of(block)[0] == 0xCD && bytes_of(block)[100] == 0xFD && *(bytes_of(block) - 1) == 0xFD);
    TM_CHECK(check_all(guard).empty());
    bytes_of(block)[100] = 0;
    TM_CHECK(check_all(guard).size() == 1);
    TM_CHECK(deallocate(guard, block, stream.id()).code() == Code::out_of_bounds);
  }
}

TM_TEST("the first use on another stream waits for the paint") {
  DebugGuardResourceAdaptor guard(make_leaf(), options(true));
  GatedStream first;
  StreamId second = 0;
  TM_CHECK(host_driver().stream_create(0, &second).ok());
  const Block block = allocate(guard, 100, first.id());
  TM_CHECK(guard.prepare_block_use(block, second, Access::write).ok());
  TM_CHECK(
      host_driver().launch_host([](void* at) { *static_cast<unsigned char*>(at) = 7; }, bytes_of(block), second).ok());
  TM_CHECK(guard.finish_block_use(block, second, Access::write).ok());
  first.pass();
  TM_CHECK(host_driver().stream_synchronize(second).ok());
  TM_CHECK(bytes_of(block)[0] == 7);
  TM_CHECK(deallocate(guard, block, second).ok());
  TM_CHECK(host_driver().stream_synchronize(second).ok() && host_driver().stream_destroy(second).ok());
}

TM_TEST("giving back on the default stream does not wait for another stream's use, and the block waits") {
  DebugGuardResourceAdaptor guard(make_leaf(), options(true));
  GatedStream reader;
  const Block block = allocate(guard, 100);
  TM_CHECK(guard.finish_block_use(block, reader.id(), Access::read).ok());
  BlockState end{};
  TM_CHECK(guard.deallocate(block, kDefaultStream, &end).ok());
  TM_CHECK(end == BlockState::retired);
  reader.pass();
  TM_CHECK(guard.reap_pending().ok() && guard.state_of(block) == BlockState::quarantined);
}

TM_TEST("a block freed on a stream that is gone goes upstream all the same") {
  auto leaf = make_leaf();
  DebugGuardResourceAdaptor guard(leaf, options(true));
  {
    GatedStream stream;
    TM_CHECK(deallocate(guard, allocate(guard, 100, stream.id()), stream.id()).ok());
    stream.pass();
    TM_CHECK(guard.reap_pending().ok());
  }
  TM_CHECK(guard.flush_quarantine().ok() && leaf->bytes_outstanding() == 0);
}

TM_TEST("the end of the guard waits for its streams and gives everything back") {
  auto leaf = make_leaf();
  int reported = 0;
  {
    GatedStream stream;
    auto guard = std::make_unique<DebugGuardResourceAdaptor>(
        leaf, options(true), DebugGuardHooks{.stacks = {}, .report = [&](const GuardFinding&) { ++reported; }});
    const Block block = allocate(*guard, 100, stream.id());
    TM_CHECK(host_driver().launch_host(&write_behind, bytes_of(block) + 100, stream.id()).ok());
    TM_CHECK(deallocate(*guard, block, stream.id()).ok());
    std::thread opener([&] { stream.open(); });
    guard.reset();
    opener.join();
  }
  TM_CHECK(reported == 1 && leaf->bytes_outstanding() == 0);
}

TM_TEST("a block that the upstream does not take back stays in quarantine and is tried again") {
  auto leaf = make_leaf();
  bool refuses = true;
  auto stubborn = std::make_shared<ForeignResourceAdaptor>(
      leaf, ResourceHooks{.allocate = {},
                          .deallocate =
                              [&](const Block& block, StreamId stream) {
                                return refuses ? Status::fail(Code::invalid_argument, "not now")
                                               : deallocate(*leaf, block, stream);
                              },
                          .reap_pending = {}});
  DebugGuardResourceAdaptor guard(stubborn, options(true, 0));
  const Block one = allocate(guard, 100);
  const Block two = allocate(guard, 200);
  TM_CHECK(deallocate(guard, one).ok() && deallocate(guard, two).ok());
  TM_CHECK(guard.state_of(one) == BlockState::quarantined && guard.quarantined_bytes() == 300 && guard.is_valid());
  TM_CHECK(guard.bytes_outstanding() == 0 && leaf->stats().current_count == 2);
  TM_CHECK(guard.flush_quarantine().code() == Code::invalid_argument);
  TM_CHECK(deallocate(guard, one).code() == Code::use_after_free);
  refuses = false;
  TM_CHECK(guard.flush_quarantine().ok());
  TM_CHECK(guard.quarantined_bytes() == 0 && leaf->bytes_outstanding() == 0 && guard.is_valid());
}

TM_TEST("for every k, the k-th call of the driver fails, nothing leaks and every counter adds up") {
  for (const bool in_reach : {true, false}) {
    bool failed = true;
    for (std::uint64_t k = 1; failed; ++k) {
      FailingDriver driver;
      auto leaf = make_leaf(driver);
      {
        DebugGuardResourceAdaptor guard(leaf, options(in_reach, 150));
        GatedStream stream;
        driver.fail_at(k);
        std::vector<Block> held;
        std::uint64_t out = 0;
        for (const StreamId each : {kDefaultStream, stream.id(), kDefaultStream, stream.id()}) {
          Block block{};
          const Status taken = guard.allocate({.nbytes = 100, .stream = each}, &block);
          TM_CHECK(taken.ok() || taken.code() == Code::driver_error);
          if (!taken.ok()) continue;
          held.push_back(block);
          out += 100;
        }
        TM_CHECK(guard.bytes_outstanding() == out && guard.is_valid());
        Findings findings;
        (void)guard.check_all(&findings).ok();
        for (const Block& block : held) {
          const Status freed = deallocate(guard, block, block.stream);
          TM_CHECK(freed.ok() || (freed.code() == Code::driver_error && guard.state_of(block) == BlockState::live));
          if (!freed.ok()) TM_CHECK(deallocate(guard, block, block.stream).ok());
        }
        TM_CHECK(guard.is_valid());
        stream.pass();
        for (int i = 0; i < 3; ++i) (void)guard.reap_pending().ok();
        (void)guard.check_all(&findings).ok();
        (void)guard.flush_quarantine().ok();
        failed = driver.has_failed();
        driver.fail_at(0);
        TM_CHECK(guard.reap_pending().ok() && guard.bytes_outstanding() == 0);
        TM_CHECK(guard.flush_quarantine().ok() && guard.quarantined_count() == 0 && guard.is_valid());
        TM_CHECK(guard.check_all(&findings).ok() && findings.empty() && guard.reports().count() == 0);
      }
      TM_CHECK(leaf->reap_pending().ok() && leaf->bytes_outstanding() == 0 && leaf->is_valid());
      TM_CHECK(k < 200);
    }
  }
}

TM_TEST("eight threads allocate, write, free, reap and check at once, and nothing is reported") {
  auto leaf = make_leaf();
  {
    DebugGuardResourceAdaptor guard(leaf, options(true, 4000));
    on_threads(8, [&](int number) {
      StreamId stream = 0;
      TM_CHECK(host_driver().stream_create(0, &stream).ok());
      for (int i = 0; i < 150; ++i) {
        const auto nbytes = static_cast<std::uint64_t>(1 + (number * 7919 + i * 104729) % 1500);
        const StreamId used = i % 3 == 0 ? stream : kDefaultStream;
        const Block block = allocate(guard, nbytes, used);
        std::memset(bytes_of(block), number, nbytes);
        TM_CHECK(deallocate(guard, block, used).ok());
        if (i % 10 == number) TM_CHECK(guard.reap_pending().ok());
        if (i % 25 == number) TM_CHECK(check_all(guard).empty());
      }
      TM_CHECK(host_driver().stream_synchronize(stream).ok());
      TM_CHECK(guard.reap_pending().ok());
      TM_CHECK(host_driver().stream_destroy(stream).ok());
    });
    TM_CHECK(guard.reap_pending().ok() && guard.bytes_outstanding() == 0 && guard.is_valid());
    TM_CHECK(guard.quarantined_bytes() <= 4000 && guard.stats().total_count == 8 * 150);
    TM_CHECK(guard.reports().count() == 0);
  }
  TM_CHECK(leaf->bytes_outstanding() == 0);
}

TM_TEST("eight threads damage their blocks and each is told of its own") {
  auto leaf = make_leaf();
  {
    DebugGuardResourceAdaptor guard(leaf, options(true, 4000));
    on_threads(8, [&](int) {
      for (std::uint64_t i = 0; i < 100; ++i) {
        const Block block = allocate(guard, 1 + i);
        if (i % 2 == 0) bytes_of(block)[1 + i] = 0;
        const Status freed = deallocate(guard, block);
        TM_CHECK(i % 2 == 0 ? freed.code() == Code::out_of_bounds : freed.ok());
        if (i % 2 == 0) TM_CHECK(freed.failure().facts[0] == block.generation && freed.failure().facts[2] == 1 + i);
      }
    });
    TM_CHECK(guard.reports().count() == 8 * 50 && guard.bytes_outstanding() == 0 && guard.is_valid());
    TM_CHECK(check_all(guard).empty());
  }
  TM_CHECK(leaf->bytes_outstanding() == 0);
}

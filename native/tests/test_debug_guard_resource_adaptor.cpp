#include <cstring>
#include <string>
#include <vector>

#include "resource/callback_memory_resource.hpp"
#include "resource/debug_guard_resource_adaptor.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/statistics_resource_adaptor.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

using Findings = std::vector<GuardFinding>;

// Memory in reach, and memory that is looked at through copies only.
DebugGuardOptions options(bool host_accessible, std::uint64_t quarantine_bytes = 1 << 20) {
  return {.host_accessible = host_accessible, .quarantine_bytes = quarantine_bytes};
}

Findings check_all(DebugGuardResourceAdaptor& guard) {
  Findings findings;
  TM_CHECK(guard.check_all(&findings).ok());
  return findings;
}

bool tells(const Status& status, const Block& block, std::int64_t offset) {
  return status.code() == Code::out_of_bounds && status.failure().facts[0] == block.generation &&
         status.failure().facts[1] == block.address && static_cast<std::int64_t>(status.failure().facts[2]) == offset;
}

bool is(const GuardFinding& finding, GuardDamageKind kind, const Block& block, std::int64_t offset) {
  return finding.kind == kind && finding.block.generation == block.generation && finding.block.tag == block.tag &&
         finding.block.nbytes == block.nbytes && finding.damage.offset == offset;
}

// Stacks that count how many of them exist.
std::atomic<int> g_stacks{0};
StackHooks counting_stacks() {
  return {.capture = []() -> void* { return new int(++g_stacks); },
          .drop =
              [](void* stack) {
                --g_stacks;
                delete static_cast<int*>(stack);
              }};
}

constexpr std::uint64_t kOddSizes[] = {1, 2, 7, 63, 64, 65, 100, 255, 256, 257, 4097, 70001};

}  // namespace

TM_TEST("one byte behind a block of any size is found, in both kinds of memory") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    for (const std::uint64_t nbytes : kOddSizes) {
      for (const std::uint64_t beyond : {0, 1, 63}) {
        const Block block = allocate(guard, nbytes);
        bytes_of(block)[nbytes + beyond] ^= 1;
        BlockState end = BlockState::live;
        const Status told = guard.deallocate(block, kDefaultStream, &end);
        TM_CHECK(tells(told, block, static_cast<std::int64_t>(nbytes + beyond)));
        TM_CHECK(end == BlockState::quarantined && guard.state_of(block) == BlockState::quarantined);
        TM_CHECK(guard.bytes_outstanding() == 0 && guard.is_valid());
      }
    }
    TM_CHECK(check_all(guard).empty() && guard.reports().count() == 3 * std::size(kOddSizes));
  }
}

TM_TEST("one byte before a block is found, at a negative offset") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    for (const std::uint64_t alignment : {1, 64, 256, 4096}) {
      for (const std::int64_t before : {1, 64}) {
        Block block{};
        TM_CHECK(guard.allocate({.nbytes = 10, .alignment = alignment}, &block).ok());
        *(bytes_of(block) - before) = 0;
        TM_CHECK(tells(deallocate(guard, block), block, -before));
      }
    }
  }
}

TM_TEST("a finding says whose block it was, what was damaged and how") {
  DebugGuardResourceAdaptor guard(make_leaf(), options(true));
  const Block block = allocate(guard, 100, kDefaultStream, intern_tag("guarded"));
  std::memset(bytes_of(block) + 100, 'A', 5);
  *(bytes_of(block) - 3) = 'B';
  TM_CHECK(tells(deallocate(guard, block), block, -3));
  GuardFinding finding;
  TM_CHECK(guard.reports().count() == 2 && guard.reports().last(&finding));
  TM_CHECK(is(finding, GuardDamageKind::overflow, block, 100));
  TM_CHECK(finding.damage.bad_bytes == 5 && finding.damage.found == 'A' && finding.damage.expected == 0xFD);
  TM_CHECK(guard.reports().about(block.generation, &finding) && !guard.reports().about(0, &finding));
}

TM_TEST("blocks that are used well are never reported, and are aligned") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    for (const std::uint64_t alignment : {1, 2, 64, 256, 512, 4096, 1 << 20}) {
      for (const std::uint64_t nbytes : kOddSizes) {
        Block block{};
        TM_CHECK(guard.allocate({.nbytes = nbytes, .alignment = alignment}, &block).ok());
        TM_CHECK(block.address % alignment == 0 && block.nbytes == nbytes &&
                 (1ULL << block.alignment_log2) == alignment);
        std::memset(bytes_of(block), 0x11, nbytes);
        TM_CHECK(deallocate(guard, block).ok());
      }
    }
    TM_CHECK(check_all(guard).empty() && guard.reports().count() == 0 && guard.is_valid());
  }
}

TM_TEST("fresh and freed memory is poison") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    const Block block = allocate(guard, 1000);
    for (int i = 0; i < 1000; ++i) TM_CHECK(bytes_of(block)[i] == 0xCD);
    std::memset(bytes_of(block), 0, 1000);
    TM_CHECK(deallocate(guard, block).ok());
    for (int i = 0; i < 1000; ++i) TM_CHECK(bytes_of(block)[i] == 0xDD);
  }
}

TM_TEST("a write after the free is found by a check, with its offset, and told once in the background") {
  for (const bool in_reach : {true, false}) {
    int reported = 0;
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach),
                                    {.stacks = {}, .report = [&](const GuardFinding&) { ++reported; }});
    const Block block = allocate(guard, 100000);
    TM_CHECK(deallocate(guard, block).ok());
    bytes_of(block)[70000] = 1;
    for (int i = 0; i < 2; ++i) {
      const Findings findings = check_all(guard);
      TM_CHECK(findings.size() == 1 && is(findings[0], GuardDamageKind::use_after_free, block, 70000));
      TM_CHECK(findings[0].damage.found == 1 && findings[0].damage.expected == 0xDD);
    }
    TM_CHECK(status_of(check_all(guard)[0]).code() == Code::use_after_free);
    TM_CHECK(guard.flush_quarantine().ok() && reported == 0 && check_all(guard).empty());
  }
}

TM_TEST("a write after the free is found when the block is pushed out, and at the end") {
  Findings reported;
  const auto report = [&](const GuardFinding& finding) { reported.push_back(finding); };
  Block first{};
  Block second{};
  {
    DebugGuardResourceAdaptor guard(make_leaf(), options(true, 1000), {.stacks = {}, .report = report});
    first = allocate(guard, 600);
    TM_CHECK(deallocate(guard, first).ok());
    bytes_of(first)[599] = 1;
    second = allocate(guard, 600);
    TM_CHECK(deallocate(guard, second).ok());  // pushes the first out; that is not this caller's failure
    TM_CHECK(reported.size() == 1 && is(reported[0], GuardDamageKind::use_after_free, first, 599));
    const Findings untold = check_all(guard);
    TM_CHECK(untold.size() == 1 && is(untold[0], GuardDamageKind::use_after_free, first, 599));
    TM_CHECK(check_all(guard).empty());
    bytes_of(second)[0] = 1;
  }
  TM_CHECK(reported.size() == 2 && is(reported[1], GuardDamageKind::use_after_free, second, 0));
}

TM_TEST("damage to a live block is found by a check before it is given back") {
  for (const bool in_reach : {true, false}) {
    DebugGuardResourceAdaptor guard(make_leaf(), options(in_reach));
    const Block block = allocate(guard, 33);
    TM_CHECK(check_all(guard).empty());
    bytes_of(block)[33] = 1;
    const Findings findings = check_all(guard);
    TM_CHECK(findings.size() == 1 && is(findings[0], GuardDamageKind::overflow, block, 33));
    TM_CHECK(guard.state_of(block) == BlockState::live);
    TM_CHECK(tells(deallocate(guard, block), block, 33));
  }
}

TM_TEST("quarantine keeps memory from the upstream until newer blocks push it out") {
  auto leaf = make_leaf();
  DebugGuardResourceAdaptor guard(leaf, {.host_accessible = true, .quarantine_bytes = 1000, .quarantine_blocks = 3});
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(guard, 100));
  TM_CHECK(guard.bytes_outstanding() == 400 && leaf->stats().current_count == 4);
  for (int i = 0; i < 3; ++i) TM_CHECK(deallocate(guard, blocks[static_cast<std::size_t>(i)]).ok());
  TM_CHECK(guard.bytes_outstanding() == 100 && guard.quarantined_bytes() == 300 && guard.quarantined_count() == 3);
  TM_CHECK(leaf->stats().current_count == 4 && guard.state_of(blocks[0]) == BlockState::quarantined);
  TM_CHECK(deallocate(guard, blocks[3]).ok());
  TM_CHECK(guard.state_of(blocks[0]) == BlockState::freed && leaf->stats().current_count == 3);
  const Block large = allocate(guard, 900);
  TM_CHECK(deallocate(guard, large).ok());
  TM_CHECK(guard.quarantined_bytes() == 1000 && guard.quarantined_count() == 2);
  const Block huge = allocate(guard, 1001);  // larger than all of it: goes by itself
  TM_CHECK(deallocate(guard, huge).ok());
  TM_CHECK(guard.state_of(huge) == BlockState::freed && guard.quarantined_bytes() == 1000);
  TM_CHECK(guard.flush_quarantine().ok() && leaf->bytes_outstanding() == 0 && guard.is_valid());
}

TM_TEST("without quarantine a block is free at once") {
  auto leaf = make_leaf();
  DebugGuardResourceAdaptor guard(leaf, options(true, 0));
  const Block block = allocate(guard, 100);
  BlockState end{};
  TM_CHECK(guard.deallocate(block, kDefaultStream, &end).ok());
  TM_CHECK(end == BlockState::freed && guard.state_of(block) == BlockState::freed && leaf->bytes_outstanding() == 0);
}

TM_TEST("double, stale and foreign frees are refused and change nothing") {
  alignas(256) static unsigned char memory[1024];
  const MemoryCallbacks one_place{.take =
                                      [](const AllocRequest&, std::uint64_t* address) {
                                        *address = reinterpret_cast<std::uint64_t>(memory);
                                        return Status();
                                      },
                                  .give_back = [](std::uint64_t, std::uint64_t, StreamId) { return Status(); }};
  auto leaf = std::make_shared<CallbackMemoryResource>(host_driver(), 0, one_place, 256);
  DebugGuardResourceAdaptor guard(leaf, options(true));
  const Block first = allocate(guard, 100);
  TM_CHECK(deallocate(guard, first).ok());
  TM_CHECK(deallocate(guard, first).code() == Code::use_after_free);  // quarantined
  TM_CHECK(guard.flush_quarantine().ok());
  TM_CHECK(deallocate(guard, first).code() == Code::use_after_free);  // freed
  const Block heir = allocate(guard, 100);
  TM_CHECK(heir.address == first.address);
  TM_CHECK(deallocate(guard, first).code() == Code::use_after_free);  // stale
  TM_CHECK(guard.prepare_block_use(first, kDefaultStream, Access::read).code() == Code::use_after_free);
  TM_CHECK(guard.state_of(heir) == BlockState::live && guard.bytes_outstanding() == 100);
  auto other = make_leaf();
  const Block foreign = allocate(*other, 10);
  TM_CHECK(deallocate(guard, foreign).code() == Code::foreign_block);
  TM_CHECK(guard.finish_block_use(foreign, kDefaultStream, Access::read).code() == Code::foreign_block);
  TM_CHECK(deallocate(guard, heir).ok() && deallocate(*other, foreign).ok());
}

TM_TEST("bad requests and options are refused and change nothing") {
  auto leaf = make_leaf();
  DebugGuardResourceAdaptor guard(leaf, options(true));
  TM_CHECK(try_allocate(guard, 0) == Code::invalid_size);
  TM_CHECK(try_allocate(guard, (1ULL << 63) - 300) == Code::invalid_size);
  TM_CHECK(try_allocate(guard, 1ULL << 60) == Code::out_of_memory);
  Block block{};
  TM_CHECK(guard.allocate({.nbytes = 1, .alignment = 3}, &block).code() == Code::invalid_alignment);
  TM_CHECK(guard.allocate({.nbytes = 1, .stream = 12345}, &block).code() == Code::stream_misuse);
  TM_CHECK(guard.stats().total_count == 0 && leaf->bytes_outstanding() == 0);
  TM_CHECK(check_guard_options({}).ok());
  TM_CHECK(check_guard_options({.front_guard = 0}).code() == Code::invalid_size);
  TM_CHECK(check_guard_options({.back_guard = 0}).code() == Code::invalid_size);
  TM_CHECK(check_guard_options({.back_guard = 1ULL << 40}).code() == Code::invalid_size);
}

TM_TEST("guards of one byte and of many are guards") {
  for (const std::uint64_t size : {1, 3, 5000}) {
    DebugGuardResourceAdaptor guard(make_leaf(), {.front_guard = size, .back_guard = size, .host_accessible = true});
    Block block{};
    TM_CHECK(guard.allocate({.nbytes = 9, .alignment = 1}, &block).ok());
    *(bytes_of(block) - size) = 0;
    bytes_of(block)[9 + size - 1] = 0;
    TM_CHECK(tells(deallocate(guard, block), block, -static_cast<std::int64_t>(size)));
    TM_CHECK(guard.reports().count() == 2);
  }
}

TM_TEST("the quarantine gives way when the upstream runs short") {
  auto limited = std::make_shared<LimitingResourceAdaptor>(make_leaf(), 10000);
  DebugGuardResourceAdaptor guard(limited, options(true));
  const Block one = allocate(guard, 4000);
  const Block two = allocate(guard, 4000);
  TM_CHECK(deallocate(guard, one).ok() && deallocate(guard, two).ok());
  const Block three = allocate(guard, 4000);
  TM_CHECK(guard.state_of(one) == BlockState::freed && guard.state_of(two) == BlockState::quarantined);
  TM_CHECK(try_allocate(guard, 9000) == Code::out_of_budget);
  TM_CHECK(guard.quarantined_count() == 0 && guard.bytes_outstanding() == 4000);
  TM_CHECK(deallocate(guard, three).ok());
}

TM_TEST("a budget above the guard is not charged for quarantine or damage") {
  auto guard = std::make_shared<DebugGuardResourceAdaptor>(make_leaf(), options(true));
  auto counted = std::make_shared<StatisticsResourceAdaptor>(guard);
  LimitingResourceAdaptor limited(counted, 100);
  GatedStream stream;
  for (int i = 0; i < 10; ++i) {
    const Block block = allocate(limited, 100);
    bytes_of(block)[100] = 0;
    TM_CHECK(tells(deallocate(limited, block), block, 100));
    TM_CHECK(limited.charged() == 0 && counted->counters().current_bytes == 0);
  }
  const Block block = allocate(limited, 100);
  TM_CHECK(deallocate(limited, block, stream.id()).ok());
  TM_CHECK(limited.charged() == 100);
  stream.pass();
  const Block next = allocate(limited, 100);  // reaps, and quarantined is no longer charged
  TM_CHECK(deallocate(limited, next).ok() && limited.charged() == 0);
}

TM_TEST("every stack is dropped once, and a finding holds both") {
  {
    DebugGuardResourceAdaptor guard(make_leaf(), options(true, 250), {.stacks = counting_stacks(), .report = {}});
    const Block kept = allocate(guard, 100);
    for (int i = 0; i < 10; ++i) TM_CHECK(deallocate(guard, allocate(guard, 100)).ok());
    TM_CHECK(g_stacks == 1 + 2 * 2);  // one live, two in quarantine with two each
    bytes_of(kept)[100] = 0;
    Findings findings = check_all(guard);
    TM_CHECK(findings[0].allocated_at != nullptr && findings[0].freed_at == nullptr);
    TM_CHECK(deallocate(guard, kept).code() == Code::out_of_bounds);
    bytes_of(kept)[0] = 0;
    findings = check_all(guard);
    TM_CHECK(findings.size() == 1 && findings[0].allocated_at != nullptr && findings[0].freed_at != nullptr);
    TM_CHECK(findings[0].allocated_at != findings[0].freed_at);
    TM_CHECK(deallocate(guard, kept).code() == Code::use_after_free);  // captures nothing that stays
    findings.clear();
    TM_CHECK(g_stacks == 2 * 2);
  }
  TM_CHECK(g_stacks == 0);
}

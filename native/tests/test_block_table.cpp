#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "alloc/block_table.hpp"
#include "alloc/generation.hpp"
#include "tests/check.hpp"

namespace {
bool g_refuse_memory = false;
}

// The table keeps its entries in one array; here that can be made to run out.
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return g_refuse_memory ? nullptr : std::malloc(size);
}
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { std::free(pointer); }

using namespace tensormem;

namespace {

BlockEntry entry_of(std::uint64_t address, std::uint64_t generation) {
  BlockEntry entry;
  entry.address = address;
  entry.generation = generation;
  entry.nbytes = address / 16 + generation;
  entry.stream = generation * 3;
  entry.tag = static_cast<std::uint32_t>(generation);
  entry.alignment_log2 = 8;
  return entry;
}

bool holds(const BlockTable& table, std::uint64_t address, std::uint64_t generation) {
  const BlockEntry* found = table.find(address);
  const BlockEntry expected = entry_of(address, generation);
  return found != nullptr && found->address == address && found->generation == generation &&
         found->nbytes == expected.nbytes && found->stream == expected.stream && found->tag == expected.tag;
}

}  // namespace

TM_TEST("an empty table knows no address") {
  BlockTable table;
  TM_CHECK(table.size() == 0 && table.is_valid());
  TM_CHECK(table.find(0) == nullptr && table.find(4096) == nullptr);
  TM_CHECK(table.check(4096, 1, false).code() == Code::foreign_block);
}

TM_TEST("an entry is found by its address and keeps what the owner writes") {
  BlockTable table;
  int uses = 0;
  TM_CHECK(table.insert(entry_of(4096, 1)).ok() && table.size() == 1);
  BlockEntry* entry = table.find(4096);
  TM_CHECK(entry != nullptr && entry->state == BlockState::live && entry->uses == nullptr);
  entry->state = BlockState::retired;
  entry->uses = &uses;
  for (std::uint64_t i = 2; i < 1000; ++i) TM_CHECK(table.insert(entry_of(4096 * i, i)).ok());
  TM_CHECK(table.find(4096)->state == BlockState::retired && table.find(4096)->uses == &uses);
  TM_CHECK(holds(table, 4096, 1) && table.is_valid());
  TM_CHECK(table.find(4097) == nullptr && table.find(0) == nullptr && table.find(~0ULL) == nullptr);
}

TM_TEST("an address that is in the table already is refused and nothing changes") {
  BlockTable table;
  TM_CHECK(table.insert(entry_of(4096, 1)).ok());
  const Status status = table.insert(entry_of(4096, 2));
  TM_CHECK(status.code() == Code::foreign_block);
  TM_CHECK(status.failure().facts[0] == 1 && status.failure().facts[1] == 4096);
  TM_CHECK(table.size() == 1 && holds(table, 4096, 1) && table.is_valid());
}

TM_TEST("a stale or a double free is use after free, one of another owner is foreign") {
  BlockTable table;
  TM_CHECK(table.insert(entry_of(4096, 7)).ok());
  TM_CHECK(table.check(4096, 7, true).ok());

  const Status stale = table.check(4096, 6, true);
  TM_CHECK(stale.code() == Code::use_after_free);
  TM_CHECK(stale.failure().facts[0] == 6 && stale.failure().facts[1] == 4096);
  TM_CHECK(table.check(4096, 6, false).code() == Code::foreign_block);
  TM_CHECK(table.check(8192, 3, false).code() == Code::foreign_block);

  table.erase(4096);
  TM_CHECK(table.check(4096, 7, true).code() == Code::use_after_free);
  TM_CHECK(table.insert(entry_of(4096, 8)).ok());
  TM_CHECK(table.check(4096, 7, true).code() == Code::use_after_free && table.check(4096, 8, true).ok());
}

TM_TEST("without memory to grow an insert fails cleanly and works again later") {
  BlockTable table;
  g_refuse_memory = true;
  TM_CHECK(table.insert(entry_of(16, 1)).code() == Code::out_of_memory && table.size() == 0 && table.is_valid());
  g_refuse_memory = false;
  TM_CHECK(table.insert(entry_of(16, 1)).ok());
  g_refuse_memory = true;
  std::uint64_t last = 1;
  while (table.insert(entry_of(16 * (last + 1), last + 1)).ok()) ++last;
  TM_CHECK(table.size() == last && table.is_valid());
  for (std::uint64_t i = 1; i <= last; ++i) TM_CHECK(holds(table, 16 * i, i));
  table.erase(16);
  TM_CHECK(table.insert(entry_of(16, 99)).ok());
  g_refuse_memory = false;
  TM_CHECK(table.insert(entry_of(16 * (last + 1), last + 1)).ok() && table.is_valid());
}

TM_TEST("clear forgets everything and the table goes on") {
  BlockTable table;
  for (std::uint64_t i = 1; i <= 100; ++i) TM_CHECK(table.insert(entry_of(256 * i, i)).ok());
  table.clear();
  TM_CHECK(table.size() == 0 && table.find(256) == nullptr && table.is_valid());
  TM_CHECK(table.insert(entry_of(256, 5)).ok() && holds(table, 256, 5));
}

TM_TEST("for_each visits every entry once") {
  BlockTable table;
  std::set<std::uint64_t> expected;
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    TM_CHECK(table.insert(entry_of(i << 21, i)).ok());
    expected.insert(i << 21);
  }
  std::multiset<std::uint64_t> seen;
  table.for_each([&](BlockEntry& entry) { seen.insert(entry.address); });
  TM_CHECK(std::equal(seen.begin(), seen.end(), expected.begin(), expected.end()));
}

TM_TEST("a million live blocks are all found and leave no trace when erased") {
  BlockTable table;
  constexpr std::uint64_t kCount = 1'000'000;
  for (std::uint64_t i = 1; i <= kCount; ++i) TM_CHECK(table.insert(entry_of(0x7F0000000000 + 4096 * i, i)).ok());
  TM_CHECK(table.size() == kCount && table.is_valid());
  for (std::uint64_t i = 1; i <= kCount; ++i) TM_CHECK(holds(table, 0x7F0000000000 + 4096 * i, i));
  for (std::uint64_t i = 1; i <= kCount; i += 2) table.erase(0x7F0000000000 + 4096 * i);
  TM_CHECK(table.is_valid());
  for (std::uint64_t i = 1; i <= kCount; ++i)
    TM_CHECK((table.find(0x7F0000000000 + 4096 * i) != nullptr) == (i % 2 == 0));
  for (std::uint64_t i = 2; i <= kCount; i += 2) table.erase(0x7F0000000000 + 4096 * i);
  TM_CHECK(table.size() == 0 && table.is_valid());
}

TM_TEST("random steps agree with a plain map, with addresses that crowd together") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    BlockTable table;
    GenerationSource generations;
    std::unordered_map<std::uint64_t, std::uint64_t> model;
    // Few enough addresses to meet again, from single bytes to 2 GiB apart.
    const std::uint64_t stride = 1ULL << (seed % 32);
    bool same = true;
    for (int step = 0; step < 4000 && same; ++step) {
      const std::uint64_t address = (1 + random() % 300) * stride;
      const auto known = model.find(address);
      if (random() % 2 == 0) {
        const std::uint64_t generation = generations.next();
        same = table.insert(entry_of(address, generation)).ok() == (known == model.end());
        model.emplace(address, generation);
      } else if (known != model.end()) {
        same = table.check(address, known->second, true).ok() && holds(table, address, known->second);
        table.erase(address);
        same = same && table.check(address, known->second, true).code() == Code::use_after_free;
        model.erase(known);
      } else {
        same = table.find(address) == nullptr;
      }
      same = same && table.size() == model.size() && (step % 16 != 0 || table.is_valid());
    }
    TM_CHECK(same);
    for (const auto& [address, generation] : model) TM_CHECK(holds(table, address, generation));
  }
}

TM_TEST("generations are unique in the process, never zero, and rise within a source") {
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  std::vector<std::vector<std::uint64_t>> taken(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&mine = taken[static_cast<std::size_t>(i)]] {
      GenerationSource source;
      for (int n = 0; n < kEach; ++n) mine.push_back(source.next());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& mine : taken) {
    TM_CHECK(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  TM_CHECK(all.size() == kThreads * kEach && all.count(0) == 0);
}

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "alloc/offset_allocator.hpp"
#include "base/align.hpp"
#include "tests/check.hpp"
#include "tests/offset_model.hpp"

namespace {
bool g_refuse_memory = false;
}

// The allocator keeps its nodes in aligned memory; here that can be made to run out.
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  if (g_refuse_memory) return nullptr;
  const auto to = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(to, (size + to - 1) / to * to);
}
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }

using namespace tensormem;

namespace {

constexpr std::uint64_t kHuge = std::numeric_limits<std::int64_t>::max();

Allocation take(OffsetAllocator& space, std::uint64_t size, std::uint64_t alignment = 1) {
  Allocation allocation;
  TM_CHECK(space.allocate(size, alignment, &allocation).ok());
  return allocation;
}

Code refused(OffsetAllocator& space, std::uint64_t size, std::uint64_t alignment = 1) {
  Allocation allocation;
  const std::uint64_t used = space.used();
  const Status status = space.allocate(size, alignment, &allocation);
  TM_CHECK(allocation.node == kNoNode && space.used() == used && space.is_valid());
  return status.code();
}

}  // namespace

TM_TEST("a range is the request rounded up to the granule and to nothing else") {
  OffsetAllocator space;
  TM_CHECK(space.open(1 << 24).ok());
  for (const std::uint64_t size : {1ULL, 15ULL, 16ULL, 17ULL, 1000ULL, 65537ULL, 1048577ULL, 3000001ULL}) {
    const Allocation range = take(space, size);
    TM_CHECK(range.size == align_up(size, 16));
    TM_CHECK(space.size(range.node) == range.size && space.offset(range.node) == range.offset);
  }
  for (std::uint64_t size = 128; size < 5000; size += 7) TM_CHECK((take(space, size).size - size) * 8 <= size);
  TM_CHECK(space.is_valid());
}

TM_TEST("the granule is the owner's choice and must be a power of two") {
  OffsetAllocator space;
  for (const std::uint64_t granule : {0ULL, 3ULL, 24ULL, ~0ULL}) {
    const Status status = space.open(4096, granule);
    TM_CHECK(status.code() == Code::invalid_alignment && status.failure().facts[0] == granule);
  }
  TM_CHECK(space.capacity() == 0);
  for (std::uint64_t granule = 1; granule <= 4096; granule *= 2) {
    TM_CHECK(space.open(10000, granule).ok());
    TM_CHECK(space.granule() == granule && space.capacity() == align_down(10000, granule));
    TM_CHECK(take(space, 1).size == granule);
  }
}

TM_TEST("a space with no room refuses everything and stays whole") {
  OffsetAllocator never_opened;
  TM_CHECK(refused(never_opened, 1) == Code::out_of_memory);
  TM_CHECK(never_opened.deallocate(0).code() == Code::invalid_argument);
  TM_CHECK(never_opened.largest_free() == 0 && never_opened.trailing_free() == 0 && never_opened.fragmentation() == 0);
  TM_CHECK(never_opened.shrink(0).ok());
  never_opened.reset();
  never_opened.for_each([](std::uint64_t, std::uint64_t, bool, std::uint32_t) { TM_CHECK(false); });

  for (const std::uint64_t capacity : {0ULL, 1ULL, 15ULL}) {
    OffsetAllocator space;
    TM_CHECK(space.open(capacity).ok() && space.capacity() == 0 && space.is_valid());
    TM_CHECK(refused(space, 1) == Code::out_of_memory);
    TM_CHECK(space.fragmentation() == 0);
    TM_CHECK(space.grow(16).ok() && take(space, 1).offset == 0);
  }
  OffsetAllocator one;
  TM_CHECK(one.open(1, 1).ok());
  TM_CHECK(take(one, 1).offset == 0 && refused(one, 1) == Code::out_of_memory);
}

TM_TEST("a never opened space opens by growing") {
  OffsetAllocator space;
  TM_CHECK(space.grow(4096).ok());
  TM_CHECK(space.capacity() == 4096 && take(space, 4096).offset == 0 && space.is_valid());
}

TM_TEST("sizes of zero or too large to add are invalid") {
  OffsetAllocator space;
  TM_CHECK(space.open(4096).ok());
  for (const std::uint64_t size : {std::uint64_t{0}, kHuge + 1, ~std::uint64_t{0}}) {
    Allocation allocation;
    const Status status = space.allocate(size, 1, &allocation);
    TM_CHECK(status.code() == Code::invalid_size && status.failure().facts[0] == size);
  }
  TM_CHECK(refused(space, kHuge) == Code::out_of_memory);
  TM_CHECK(space.open(kHuge + 1).code() == Code::invalid_size && space.capacity() == 4096);
}

TM_TEST("an alignment that is no power of two is invalid") {
  OffsetAllocator space;
  TM_CHECK(space.open(4096).ok());
  for (const std::uint64_t alignment : {0ULL, 3ULL, 12ULL, 48ULL, ~0ULL}) {
    Allocation allocation;
    const Status status = space.allocate(16, alignment, &allocation);
    TM_CHECK(status.code() == Code::invalid_alignment && status.failure().facts[0] == alignment);
  }
  TM_CHECK(space.used() == 0);
}

TM_TEST("a space of nearly 2^63 bytes hands out all of them") {
  OffsetAllocator space;
  TM_CHECK(space.open(kHuge, 1).ok() && space.capacity() == kHuge && space.largest_free() == kHuge);
  const Allocation all = take(space, kHuge);
  TM_CHECK(all.size == kHuge && refused(space, 1) == Code::out_of_memory);
  TM_CHECK(space.deallocate(all.node).ok() && space.is_valid());
  const Allocation half = take(space, 1ULL << 62);
  const Allocation aligned = take(space, 1, 1ULL << 62);
  TM_CHECK(half.offset == 0 && aligned.offset == 1ULL << 62);
  TM_CHECK(refused(space, 1, 1ULL << 63) == Code::out_of_memory);
  TM_CHECK(refused(space, 1ULL << 62) == Code::out_of_memory);
  TM_CHECK(space.deallocate(half.node).ok() && take(space, 1, 1ULL << 63).offset == 0);
}

TM_TEST("alignment goes up to the size of the space") {
  OffsetAllocator space;
  TM_CHECK(space.open(1 << 20).ok());
  for (std::uint64_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    space.reset();
    TM_CHECK(take(space, 1 << 20, alignment).offset == 0);
    space.reset();
    const Allocation first = take(space, 16);
    Allocation second;
    const Status status = space.allocate(16, alignment, &second);
    TM_CHECK(status.ok() == (alignment < 1 << 20));
    TM_CHECK(!status.ok() || is_aligned(second.offset, alignment));
    TM_CHECK(space.deallocate(first.node).ok() && space.is_valid());
  }
}

TM_TEST("an aligned request finds the only place where it fits") {
  OffsetAllocator space;
  TM_CHECK(space.open(64 * 1024).ok());
  std::vector<Allocation> all;
  while (space.total_free() != 0) all.push_back(take(space, 1024));
  // Many holes of the right size at the wrong place, and one at the right one.
  for (std::size_t i = 1; i < all.size(); i += 2)
    if (all[i].offset % 4096 != 0) TM_CHECK(space.deallocate(all[i].node).ok());
  TM_CHECK(refused(space, 1024, 4096) == Code::out_of_memory);
  TM_CHECK(space.deallocate(all[32].node).ok());
  TM_CHECK(take(space, 1024, 4096).offset == 32 * 1024);
}

TM_TEST("neighbours coalesce at once on both sides") {
  OffsetAllocator space;
  TM_CHECK(space.open(4096).ok());
  const Allocation a = take(space, 1024);
  const Allocation b = take(space, 1024);
  const Allocation c = take(space, 1024);
  const Allocation d = take(space, 1024);
  TM_CHECK(space.total_free() == 0 && space.largest_free() == 0 && space.fragmentation() == 0);
  TM_CHECK(space.deallocate(a.node).ok() && space.deallocate(c.node).ok());
  TM_CHECK(space.total_free() == 2048 && space.largest_free() == 1024 && space.fragmentation() == 0.5);
  TM_CHECK(space.deallocate(b.node).ok() && space.largest_free() == 3072 && space.fragmentation() == 0);
  TM_CHECK(space.deallocate(d.node).ok() && space.largest_free() == 4096 && space.is_valid());
}

TM_TEST("running out tells what was asked, what is free and the largest free range") {
  OffsetAllocator space;
  TM_CHECK(space.open(4096).ok());
  const Allocation a = take(space, 1024);
  const Allocation b = take(space, 1024);
  TM_CHECK(space.deallocate(a.node).ok());
  Allocation unused;
  const Status status = space.allocate(2064, 1, &unused);
  TM_CHECK(status.code() == Code::out_of_memory);
  TM_CHECK(status.failure().facts[0] == 2064 && status.failure().facts[1] == 3072 && status.failure().facts[2] == 2048);
  TM_CHECK(space.is_live(b.node) && space.used() == 1024 && unused.node == kNoNode);
}

TM_TEST("largest_free is exact and can be allocated even when its class is crowded") {
  OffsetAllocator space;
  TM_CHECK(space.open(64 << 20).ok());
  std::mt19937_64 random(5);
  std::vector<Allocation> holes;
  // Sizes of one class that differ by a granule, each between two that stay.
  while (space.total_free() > 1 << 21) {
    holes.push_back(take(space, (1 << 20) + 16 * (random() % 500)));
    take(space, 16);
  }
  take(space, space.largest_free());
  std::uint64_t largest = 0;
  for (const Allocation& hole : holes) {
    TM_CHECK(space.deallocate(hole.node).ok());
    largest = std::max(largest, hole.size);
    TM_CHECK(space.largest_free() == largest);
  }
  TM_CHECK(refused(space, largest + 1) == Code::out_of_memory);
  for (std::size_t i = 0; i < holes.size(); ++i) {
    const std::uint64_t wanted = space.largest_free();
    TM_CHECK(take(space, wanted).size == wanted);
  }
  TM_CHECK(space.total_free() == 0);
}

TM_TEST("a node that is not live is refused and nothing changes") {
  OffsetAllocator space;
  TM_CHECK(space.open(1 << 20).ok());
  std::vector<Allocation> all;
  for (int i = 0; i < 200; ++i) all.push_back(take(space, 512));
  for (std::size_t i = 0; i < all.size(); i += 2) TM_CHECK(space.deallocate(all[i].node).ok());
  const std::uint64_t used = space.used();
  for (std::size_t i = 0; i < all.size(); i += 2)
    TM_CHECK(space.deallocate(all[i].node).code() == Code::invalid_argument);
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto node = static_cast<std::uint32_t>(i < 1000 ? i + 200 : random());
    if (space.is_live(node)) continue;
    TM_CHECK(space.deallocate(node).code() == Code::invalid_argument);
  }
  // What would lie before the first node, on the edges of the space, and past the end of 32 bits.
  for (const std::uint32_t node :
       {kNoNode, kNoNode - 1, 0x3FFFFFFEU, 0x3FFFFFFFU, 0x40000000U, 0x7FFFFFFFU, 0x80000000U})
    TM_CHECK(space.deallocate(node).code() == Code::invalid_argument);
  TM_CHECK(space.used() == used && space.is_valid());
  for (std::size_t i = 1; i < all.size(); i += 2) TM_CHECK(space.deallocate(all[i].node).ok());
  TM_CHECK(space.largest_free() == space.capacity());
}

TM_TEST("without memory for another node an allocation fails cleanly and works again later") {
  OffsetAllocator space;
  g_refuse_memory = true;
  TM_CHECK(space.open(1 << 20).code() == Code::out_of_memory && space.capacity() == 0);
  g_refuse_memory = false;
  TM_CHECK(space.open(1 << 20).ok());
  std::vector<Allocation> all;
  g_refuse_memory = true;
  Allocation next;
  while (space.allocate(16, 16, &next).ok()) all.push_back(next);
  TM_CHECK(all.size() >= 32 && space.total_free() > 16 && space.used() == all.size() * 16 && space.is_valid());
  TM_CHECK(space.grow(1ULL << 40).code() == Code::out_of_memory && space.capacity() == 1 << 20);
  for (std::size_t i = 0; i < all.size(); i += 2) TM_CHECK(space.deallocate(all[i].node).ok());
  g_refuse_memory = false;
  TM_CHECK(take(space, 16).size == 16 && space.grow(1ULL << 40).ok() && space.is_valid());
  for (std::size_t i = 1; i < all.size(); i += 2) TM_CHECK(space.offset(all[i].node) == all[i].offset);
}

TM_TEST("growing adds room at the end and keeps every range") {
  OffsetAllocator space;
  TM_CHECK(space.open(1024).ok());
  const Allocation a = take(space, 1024);
  TM_CHECK(space.grow(1024).ok() && space.grow(2048).ok() && space.trailing_free() == 1024);
  TM_CHECK(space.grow(1ULL << 50).ok() && space.largest_free() == (1ULL << 50) - 1024);
  const Allocation b = take(space, (1ULL << 50) - 1024);
  TM_CHECK(b.offset == 1024 && space.offset(a.node) == 0 && space.is_valid());
  const Status status = space.grow(1024);
  TM_CHECK(status.code() == Code::invalid_size && status.failure().facts[1] == 1ULL << 50);
  TM_CHECK(space.grow(kHuge + 1).code() == Code::invalid_size && space.capacity() == 1ULL << 50);
}

TM_TEST("shrinking gives up what is free at the end and says how far it could go") {
  OffsetAllocator space;
  TM_CHECK(space.open(8192).ok());
  const Allocation a = take(space, 1024);
  const Allocation b = take(space, 1024);
  TM_CHECK(space.shrink(8192).ok() && space.shrink(4096).ok() && space.capacity() == 4096);
  const Status status = space.shrink(1024);
  TM_CHECK(status.code() == Code::invalid_size);
  TM_CHECK(status.failure().facts[0] == 1024 && status.failure().facts[1] == 2048 && space.capacity() == 4096);
  TM_CHECK(space.shrink(2048).ok() && space.total_free() == 0 && space.trailing_free() == 0);
  TM_CHECK(space.deallocate(b.node).ok() && space.trailing_free() == 1024 && space.shrink(1024).ok());
  TM_CHECK(space.deallocate(a.node).ok() && space.shrink(0).ok() && space.capacity() == 0 && space.is_valid());
  TM_CHECK(space.shrink(1).code() == Code::invalid_size);
  TM_CHECK(space.grow(4096).ok() && take(space, 4096).offset == 0);
}

TM_TEST("the high-water mark is the highest end so far until a reset") {
  OffsetAllocator space;
  TM_CHECK(space.open(8192).ok() && space.high_water() == 0);
  const Allocation a = take(space, 100);
  TM_CHECK(space.high_water() == 112);
  TM_CHECK(take(space, 16, 4096).offset == 4096 && space.high_water() == 4112);
  TM_CHECK(space.deallocate(a.node).ok() && space.high_water() == 4112);
  space.reset();
  TM_CHECK(space.high_water() == 0 && space.used() == 0 && !space.is_live(a.node) && space.is_valid());
}

TM_TEST("the owner's number stays with a live range and starts at zero") {
  OffsetAllocator space;
  TM_CHECK(space.open(1 << 20).ok());
  std::vector<Allocation> all;
  for (std::uint64_t i = 0; i < 500; ++i) {
    all.push_back(take(space, 256));
    TM_CHECK(space.user(all.back().node) == 0);
    space.set_user(all.back().node, ~i << 20);
  }
  for (std::size_t i = 0; i < all.size(); i += 3) TM_CHECK(space.deallocate(all[i].node).ok());
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (i % 3 != 0) TM_CHECK(space.user(all[i].node) == ~i << 20);
  TM_CHECK(space.is_valid() && space.user(take(space, 256).node) == 0);
}

TM_TEST("a live range splits in two and merges with its live neighbour") {
  OffsetAllocator space;
  TM_CHECK(space.open(4096).ok());
  const Allocation a = take(space, 1024);
  space.set_user(a.node, 7);
  std::uint32_t rest = kNoNode;
  for (const std::uint64_t bad : {0ULL, 8ULL, 1024ULL, 2048ULL})
    TM_CHECK(space.split(a.node, bad, &rest).code() == Code::invalid_size && rest == kNoNode);
  TM_CHECK(space.split(kNoNode, 16, &rest).code() == Code::invalid_argument);
  TM_CHECK(space.split(a.node, 256, &rest).ok() && space.is_valid());
  TM_CHECK(space.size(a.node) == 256 && space.offset(rest) == 256 && space.size(rest) == 768);
  TM_CHECK(space.user(a.node) == 7 && space.user(rest) == 0 && space.used() == 1024);
  TM_CHECK(space.live_after(a.node) == rest && space.live_before(rest) == a.node);
  TM_CHECK(space.live_before(a.node) == kNoNode && space.live_after(rest) == kNoNode);
  space.merge(a.node);
  TM_CHECK(space.size(a.node) == 1024 && !space.is_live(rest) && space.user(a.node) == 7 && space.is_valid());
  TM_CHECK(space.deallocate(a.node).ok() && space.largest_free() == 4096);
}

namespace {

// Sizes over all magnitudes up to `bits`, as real requests are.
std::uint64_t any_size(std::mt19937_64& random, int bits) { return random() >> (64 - bits + random() % bits); }

void compare_with_model(std::uint64_t seed, std::uint64_t capacity, std::uint64_t granule, int steps, int size_bits) {
  std::mt19937_64 random(seed);
  test::OffsetModel model(capacity, granule);
  TM_CHECK(model.opened());
  for (int i = 0; i < steps; ++i) {
    const auto what = static_cast<std::uint8_t>(random());
    const std::uint64_t a = what % 16 < 6 ? any_size(random, size_bits) : random();
    const bool same = model.step(what, a, random()) && (i % 8 != 0 || model.agrees());
    TM_CHECK(same);
    if (!same) return;
  }
  TM_CHECK(model.agrees());
}

}  // namespace

TM_TEST("random steps agree with a map of live ranges in crowded spaces") {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) compare_with_model(seed, 1 << 18, 1ULL << (seed % 10), 1500, 14);
}

TM_TEST("random steps agree with a map of live ranges in tiny and in huge spaces") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    compare_with_model(seed, seed, 1, 500, 6);
    compare_with_model(seed, kHuge - 65536 * seed, 1ULL << (seed % 20), 500, 63);
  }
}

TM_TEST("ranges of two spans never become one, wherever the spans lie") {
  OffsetAllocator space;
  TM_CHECK(space.open(0, 256).ok() && space.capacity() == 0);
  std::uint32_t high = kNoNode;
  std::uint32_t low = kNoNode;
  std::uint32_t middle = kNoNode;
  TM_CHECK(space.add_span(1ULL << 40, 4096, kNoNode, &high).ok());
  TM_CHECK(space.add_span(4096, 4096, high, &low).ok());
  TM_CHECK(space.add_span(8192, 4096, high, &middle).ok());  // touches the one before it
  TM_CHECK(space.capacity() == 3 * 4096 && space.largest_free() == 4096);
  TM_CHECK(refused(space, 8192) == Code::out_of_memory);
  const Allocation first = take(space, 4096);
  const Allocation second = take(space, 1024);
  TM_CHECK(!space.is_live(low) && space.live_before(second.node) == kNoNode);
  std::uint64_t beside = 0;
  TM_CHECK(space.is_alone(second.node, &beside) && beside == 3072);
  TM_CHECK(space.is_alone(first.node, &beside) && beside == 0);
  const Allocation third = take(space, 3072);
  TM_CHECK(!space.is_alone(second.node, &beside) || !space.is_alone(third.node, &beside) ||
           space.live_after(second.node) != third.node);
  for (const Allocation& each : {first, second, third}) TM_CHECK(space.deallocate(each.node).ok());
  for (const std::uint32_t span : {low, middle, high}) TM_CHECK(space.span_is_free(span));
  TM_CHECK(space.largest_free() == 4096 && space.is_valid());
  space.remove_span(middle);
  Allocation whole;
  space.take_span(low, &whole);
  TM_CHECK(whole.offset == 4096 && whole.size == 4096 && !space.span_is_free(low));
  TM_CHECK(space.deallocate(whole.node).ok());
  space.remove_span(low);
  space.remove_span(high);
  TM_CHECK(space.capacity() == 0 && space.total_free() == 0 && space.is_valid());
}

TM_TEST("a span that is extended is one with what was added") {
  OffsetAllocator space;
  TM_CHECK(space.open(0, 256).ok());
  std::uint32_t first = kNoNode;
  std::uint32_t other = kNoNode;
  TM_CHECK(space.add_span(0, 1024, kNoNode, &first).ok() && space.add_span(1 << 20, 1024, kNoNode, &other).ok());
  Allocation added;
  TM_CHECK(space.extend_span(1024, 1024, other, &added).ok() && space.is_live(added.node));
  TM_CHECK(space.deallocate(added.node).ok() && space.largest_free() == 2048 && space.span_is_free(first));
  std::uint32_t none = kNoNode;
  TM_CHECK(space.add_span(100, 1024, other, &none).code() == Code::invalid_size);
  TM_CHECK(space.add_span(1 << 21, 0, kNoNode, &none).code() == Code::invalid_size && space.is_valid());
}

TM_TEST("the closest fit leaves the least over, and fails only when nothing fits") {
  OffsetAllocator space;
  TM_CHECK(space.open(0, 256).ok());
  std::uint32_t span = kNoNode;
  for (std::uint64_t i = 20; i-- > 10;) {  // spans of 10 to 19 MiB, the large ones lower
    TM_CHECK(space.add_span((30 - i) << 30, i << 20, kNoNode, &span).ok());
  }
  Allocation range;
  TM_CHECK(space.allocate_closest(12 << 20, 256, &range).ok() && range.offset == 18ULL << 30);
  TM_CHECK(space.allocate_closest((12 << 20) + 1, 256, &range).ok() && range.offset == 17ULL << 30);
  TM_CHECK(space.allocate_closest(19 << 20, 1 << 30, &range).ok() && range.offset == 11ULL << 30);
  TM_CHECK(space.allocate_closest(19 << 20, 256, &range).code() == Code::out_of_memory);
  TM_CHECK(space.allocate_closest(0, 256, &range).code() == Code::invalid_size && space.is_valid());
}

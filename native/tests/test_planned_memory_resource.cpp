// Planned memory: what comes as planned lies as planned, and what does not never shares a byte with it.
#include <memory>
#include <vector>

#include "plan/plan_random.hpp"
#include "resource/abstract_memory_resource.hpp"
#include "resource/planned_memory_resource.hpp"
#include "tests/check.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;

namespace {

std::shared_ptr<PlannedMemoryResource> planned(std::vector<PlannedBlock> plan, std::uint64_t height) {
  std::shared_ptr<PlannedMemoryResource> made;
  const auto upstream = std::make_shared<AbstractMemoryResource>(host_driver(), 1ULL << 40);
  TM_CHECK(PlannedMemoryResource::create(upstream, std::move(plan), height, 256, &made).ok());
  return made;
}

Block take(PlannedMemoryResource& resource, std::uint64_t nbytes) {
  Block block;
  TM_CHECK(resource.allocate({.nbytes = nbytes}, &block).ok());
  return block;
}

void give(PlannedMemoryResource& resource, const Block& block) {
  BlockState end;
  TM_CHECK(resource.deallocate(block, kDefaultStream, &end).ok());
}

}  // namespace

TM_TEST("blocks that come as planned lie at their offsets, step after step") {
  const auto resource = planned({{0, 512}, {512, 256}, {0, 256}}, 768);
  std::uint64_t base = 0;
  for (int step = 0; step < 3; ++step) {
    resource->new_step();
    const Block a = take(*resource, 512);
    const Block b = take(*resource, 256);
    give(*resource, a);
    const Block c = take(*resource, 256);
    if (step == 0) base = a.address;
    TM_CHECK(a.address == base && b.address == base + 512 && c.address == base);
    give(*resource, b);
    give(*resource, c);
  }
  TM_CHECK(resource->usage().planned == 9 && resource->usage().fallbacks == 0 && resource->is_valid());
}

TM_TEST("another size, one too many and one not freed in time go to the upstream") {
  const auto resource = planned({{0, 512}, {0, 512}, {512, 256}}, 768);
  const Block first = take(*resource, 512);
  const Block late = take(*resource, 512);  // its place is still taken
  const Block strange = take(*resource, 300);
  const Block third = take(*resource, 256);
  TM_CHECK(third.address == first.address + 512);
  TM_CHECK(late.address >= first.address + 768 && strange.address >= first.address + 768);
  TM_CHECK(resource->usage().planned == 2 && resource->usage().fallbacks == 2);
  for (const Block& block : {first, late, strange, third}) give(*resource, block);
}

TM_TEST("no plan, however wrong, makes two live blocks share bytes") {
  PlanRandom random(4);
  std::vector<PlannedBlock> plan;
  for (int i = 0; i < 50; ++i) plan.push_back({random.next() % 16 * 256, (1 + random.next() % 8) * 256});
  const auto resource = planned(plan, 24 * 256);
  std::vector<Block> live;
  for (int step = 0; step < 3000; ++step) {
    if (random.next() % 40 == 0) resource->new_step();
    if (!live.empty() && random.next() % 2 == 0) {
      const std::size_t at = random.next() % live.size();
      give(*resource, live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const Block block = take(*resource, (1 + random.next() % 8) * 256);
    for (const Block& other : live)
      TM_CHECK(block.address + block.nbytes <= other.address || other.address + other.nbytes <= block.address);
    live.push_back(block);
  }
  TM_CHECK(resource->usage().planned > 100 && resource->usage().fallbacks > 100);
  for (const Block& block : live) give(*resource, block);
}

TM_TEST("a plan whose blocks lie outside is refused") {
  const auto upstream = std::make_shared<AbstractMemoryResource>(host_driver(), 1ULL << 40);
  std::shared_ptr<PlannedMemoryResource> made;
  TM_CHECK(PlannedMemoryResource::create(upstream, {{512, 512}}, 1000, 1, &made).code() == Code::invalid_offset);
  TM_CHECK(PlannedMemoryResource::create(upstream, {{0, 512}}, 1ULL << 41, 1, &made).code() == Code::out_of_memory);
  TM_CHECK(upstream->bytes_outstanding() == 0);
}

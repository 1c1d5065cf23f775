#include <memory>
#include <vector>

#include "resource/kind_memory_resource.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/pool_memory_resource.hpp"
#include "resource/shared_memory_maker.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

// Memory at an address of the test's choosing; it counts what is made and what is released.
class CountingMaker final : public MemoryMaker {
 public:
  ~CountingMaker() { TM_CHECK(made == released); }

  Status make(const AllocRequest& request, std::unique_ptr<KindMemory>* memory) noexcept override {
    if (fails) return Status::fail(Code::out_of_memory, "there is none", request.nbytes);
    ++made;
    *memory = std::make_unique<Piece>(this);
    return {};
  }

  int made = 0;
  int released = 0;
  bool fails = false;
  std::uint64_t address = 0;

 private:
  class Piece final : public KindMemory {
   public:
    explicit Piece(CountingMaker* maker) : maker_(maker) {}
    std::uint64_t address() const noexcept override { return maker_->address; }
    Status release() noexcept override {
      ++maker_->released;
      return {};
    }

   private:
    CountingMaker* const maker_;
  };
};

Status allocate_from(Resource& resource, MemoryMaker* maker, Block* block, std::uint64_t alignment = 1) {
  return resource.allocate({.nbytes = 4096, .alignment = alignment, .tag = 7, .maker = maker}, block);
}

}  // namespace

TM_TEST("the maker of the request makes the bytes, through whatever stands above") {
  CountingMaker maker;
  maker.address = 0x1000;
  const auto leaf = std::make_shared<KindMemoryResource>(host_driver(), 0, MemorySpace{}, nullptr);
  LimitingResourceAdaptor limited(leaf, 6000);
  Block block{};
  TM_CHECK(allocate_from(limited, &maker, &block).ok());
  TM_CHECK(maker.made == 1 && block.address == 0x1000 && block.tag == 7 && leaf->bytes_outstanding() == 4096);
  Block refused{};
  TM_CHECK(!allocate_from(limited, &maker, &refused).ok() && maker.made == 1);
  TM_CHECK(deallocate(limited, block).ok() && maker.released == 1 && leaf->bytes_outstanding() == 0);
  TM_CHECK(deallocate(limited, block).code() == Code::use_after_free && maker.released == 1);
  TM_CHECK(leaf->is_valid());
}

TM_TEST("memory without an address, or at one that is out, has a handle that no address is") {
  CountingMaker maker;
  KindMemoryResource leaf(host_driver(), 0, MemorySpace{}, nullptr);
  Block nowhere{};
  Block first{};
  Block second{};
  TM_CHECK(allocate_from(leaf, &maker, &nowhere, 256).ok() && is_handle(nowhere.address));
  maker.address = 0x2000;
  TM_CHECK(allocate_from(leaf, &maker, &first).ok() && first.address == 0x2000);
  TM_CHECK(allocate_from(leaf, &maker, &second).ok() && is_handle(second.address));
  TM_CHECK(second.address != nowhere.address);
  for (const Block& block : {nowhere, first, second}) TM_CHECK(deallocate(leaf, block).ok());
  TM_CHECK(maker.released == 3 && leaf.bytes_outstanding() == 0 && leaf.is_valid());
}

TM_TEST("what cannot be made or is not aligned changes nothing") {
  CountingMaker maker;
  KindMemoryResource leaf(host_driver(), 0, MemorySpace{}, nullptr);
  Block block{};
  TM_CHECK(try_allocate(leaf, 4096) == Code::not_supported);
  maker.fails = true;
  TM_CHECK(allocate_from(leaf, &maker, &block).code() == Code::out_of_memory);
  maker.fails = false;
  maker.address = 0x1040;
  TM_CHECK(allocate_from(leaf, &maker, &block, 4096).code() == Code::invalid_alignment);
  TM_CHECK(maker.made == 1 && maker.released == 1 && leaf.stats().total_count == 0);
}

TM_TEST("the memory is released when every stream has passed, and once") {
  CountingMaker maker;
  KindMemoryResource leaf(host_driver(), 0, MemorySpace{}, nullptr);
  GatedStream stream;
  Block block{};
  TM_CHECK(allocate_from(leaf, &maker, &block).ok());
  TM_CHECK(leaf.finish_block_use(block, stream.id(), Access::read).ok());
  TM_CHECK(deallocate(leaf, block).ok() && maker.released == 0 && leaf.bytes_outstanding() == 4096);
  TM_CHECK(leaf.reap_pending().ok() && maker.released == 0);
  stream.pass();
  TM_CHECK(leaf.reap_pending().ok() && maker.released == 1 && leaf.bytes_outstanding() == 0);
}

TM_TEST("shared memory is made by size alone, and a pool may stand over it") {
  const auto leaf =
      std::make_shared<KindMemoryResource>(host_driver(), 0, MemorySpace{}, standard_shared_memory_maker());
  const Block block = allocate(*leaf, 10'000);
  for (int i = 0; i < 10'000; ++i) TM_CHECK(bytes_of(block)[i] == 0);
  bytes_of(block)[9'999] = 1;
  TM_CHECK(deallocate(*leaf, block).ok());
  SharedMemoryMaker maker;
  Block owned{};
  TM_CHECK(allocate_from(*leaf, &maker, &owned, 4096).ok() && maker.made()->address() == owned.address);
  TM_CHECK(deallocate(*leaf, owned).ok() && !maker.made()->is_open());
  std::shared_ptr<PoolMemoryResource> pool;
  TM_CHECK(PoolMemoryResource::create(leaf, {}, &pool).ok());
  const Block part = allocate(*pool, 100);
  bytes_of(part)[99] = 1;
  TM_CHECK(deallocate(*pool, part).ok());
}

TM_TEST("threads make and release at once and every piece is released") {
  const auto leaf =
      std::make_shared<KindMemoryResource>(host_driver(), 0, MemorySpace{}, standard_shared_memory_maker());
  on_threads(4, [&](int number) {
    for (int i = 0; i < 50; ++i) {
      SharedMemoryMaker maker;
      Block block{};
      TM_CHECK(allocate_from(*leaf, number % 2 == 0 ? &maker : nullptr, &block).ok());
      TM_CHECK(bytes_of(block)[0] == 0);
      bytes_of(block)[0] = 1;
      TM_CHECK(deallocate(*leaf, block).ok());
    }
  });
  TM_CHECK(leaf->is_valid() && leaf->bytes_outstanding() == 0);
}

#include <cstring>
#include <thread>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "resource/c_allocator.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/plain_memory_resource.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

ResourcePtr make_host() { return std::make_shared<PlainMemoryResource>(host_driver(), 0, AllocationOptions{}); }

bool all_are(const void* bytes, unsigned char value, std::size_t nbytes) {
  const auto* each = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < nbytes; ++i)
    if (each[i] != value) return false;
  return true;
}

// Hands out one address again and again, as no resource should, and tells nobody who uses its blocks.
class Careless final : public Resource {
 public:
  Careless() : Resource(host_driver(), 0, space_of(host_driver(), 0)) {}
  Status do_allocate(const AllocRequest& request, Block* block) override {
    *block = {.address = reinterpret_cast<std::uint64_t>(&byte_), .nbytes = request.nbytes, .generation = ++made};
    return {};
  }
  Status do_deallocate(const Block&, StreamId, BlockState* end) override {
    ++freed;
    *end = BlockState::freed;
    return {};
  }
  std::uint64_t bytes_outstanding() const override { return made - freed; }
  Stats stats() const override { return {}; }
  BlockState state_of(const Block&) const override { return BlockState::live; }
  bool is_valid() const override { return freed <= made; }

  std::uint64_t made = 0;
  std::uint64_t freed = 0;

 private:
  char byte_ = 0;
};

}  // namespace

TM_TEST("memory comes from the resource, aligned and tagged, and goes back by bare pointer") {
  const ResourcePtr resource = make_host();
  CAllocator allocator(resource, intern_tag("numpy"));
  void* pointer = allocator.allocate(1000);
  TM_CHECK(reinterpret_cast<std::uintptr_t>(pointer) % CAllocator::kAlignment == 0);
  TM_CHECK(resource->bytes_outstanding() == 1000 && allocator.book().size() == 1);
  TM_CHECK(tag_text(allocator.book().find(reinterpret_cast<std::uint64_t>(pointer))->block.tag) == "numpy");
  std::memset(pointer, 1, 1000);
  allocator.deallocate(pointer);
  TM_CHECK(resource->bytes_outstanding() == 0 && allocator.book().size() == 0);
  TM_CHECK(allocator.refusals().count() == 0 && allocator.refusals().last() == nullptr);
}

TM_TEST("zero bytes have an address of their own, and null is nothing to free") {
  const ResourcePtr resource = make_host();
  CAllocator allocator(resource, kUntagged);
  void* one = allocator.allocate(0);
  void* two = allocator.allocate_zeroed(0, 8);
  void* three = allocator.reallocate(nullptr, 0);
  TM_CHECK(one != nullptr && two != nullptr && three != nullptr && one != two && two != three);
  allocator.deallocate(nullptr);
  for (void* each : {one, two, three}) allocator.deallocate(each);
  TM_CHECK(resource->bytes_outstanding() == 0 && allocator.refusals().count() == 0);
}

TM_TEST("zeroed memory is zero although it was used before, and a product that overflows is refused") {
  CAllocator allocator(make_host(), kUntagged);
  for (const std::size_t nbytes : {std::size_t{64}, std::size_t{5000}, std::size_t{3} << 20}) {
    void* dirty = allocator.allocate(nbytes);
    std::memset(dirty, 0xff, nbytes);
    allocator.deallocate(dirty);
    void* clean = allocator.allocate_zeroed(nbytes / 4, 4);
    TM_CHECK(all_are(clean, 0, nbytes / 4 * 4));
    allocator.deallocate(clean);
  }
  TM_CHECK(allocator.allocate_zeroed(~std::size_t{0} / 2, 3) == nullptr);
  TM_CHECK(allocator.refusals().last()->code() == Code::invalid_size);
}

TM_TEST("reallocation keeps the contents, growing and shrinking") {
  const ResourcePtr resource = make_host();
  CAllocator allocator(resource, kUntagged);
  void* pointer = allocator.allocate(100);
  std::memset(pointer, 7, 100);
  pointer = allocator.reallocate(pointer, 2 << 20);
  TM_CHECK(all_are(pointer, 7, 100) && resource->bytes_outstanding() == 2 << 20);
  pointer = allocator.reallocate(pointer, 10);
  TM_CHECK(all_are(pointer, 7, 10) && resource->bytes_outstanding() == 10);
  allocator.deallocate(pointer);
  TM_CHECK(resource->bytes_outstanding() == 0);
}

TM_TEST("a refused reallocation leaves the old memory; a smaller size is never refused") {
  const auto limited = std::make_shared<LimitingResourceAdaptor>(make_host(), 1000);
  CAllocator allocator(limited, kUntagged);
  void* pointer = allocator.allocate(800);
  std::memset(pointer, 7, 800);
  TM_CHECK(allocator.reallocate(pointer, 900) == nullptr);
  TM_CHECK(allocator.refusals().last()->code() == Code::out_of_budget);
  TM_CHECK(allocator.reallocate(pointer, 500) == pointer && all_are(pointer, 7, 800));
  TM_CHECK(allocator.refusals().count() == 1);
  allocator.deallocate(pointer);
  TM_CHECK(limited->bytes_outstanding() == 0);
}

TM_TEST("foreign, inner and stale pointers are refused, counted and change nothing") {
  const ResourcePtr resource = make_host();
  CAllocator allocator(resource, kUntagged);
  CAllocator other(resource, kUntagged);
  auto* pointer = static_cast<char*>(allocator.allocate(100));
  int mine = 0;
  allocator.deallocate(&mine);
  allocator.deallocate(pointer + 1);
  other.deallocate(pointer);
  TM_CHECK(allocator.reallocate(&mine, 10) == nullptr);
  TM_CHECK(allocator.refusals().count() == 3 && other.refusals().count() == 1);
  TM_CHECK(allocator.refusals().last()->code() == Code::foreign_block && resource->bytes_outstanding() == 100);
  allocator.deallocate(pointer);
  allocator.deallocate(pointer);
  TM_CHECK(allocator.refusals().count() == 4 && resource->bytes_outstanding() == 0);
}

TM_TEST("an address that is handed out twice stays with its first owner") {
  const auto careless = std::make_shared<Careless>();
  CAllocator allocator(careless, kUntagged);
  void* first = allocator.allocate(10);
  TM_CHECK(first != nullptr && allocator.allocate(10) == nullptr);
  TM_CHECK(careless->freed == 0 && allocator.book().size() == 1);
  TM_CHECK(allocator.refusals().last()->code() == Code::foreign_block);
  allocator.deallocate(first);
  TM_CHECK(careless->freed == 1 && allocator.book().is_valid());
}

TM_TEST("a recorded stream is waited for by a resource that does not track uses itself") {
  const auto careless = std::make_shared<Careless>();
  AddressBook book;
  StreamId user = 0;
  TM_CHECK(host_driver().stream_create(0, &user).ok());
  void* pointer = nullptr;
  TM_CHECK(book.allocate(careless, {.nbytes = 1}, &pointer).ok());
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  TM_CHECK(book.record_use(address, user).ok());
  TM_CHECK(book.record_use(address + 1, user).code() == Code::foreign_block);
  int ran = 0;
  TM_CHECK(host_driver().launch_host([](void* count) { ++*static_cast<int*>(count); }, &ran, user).ok());
  TM_CHECK(book.deallocate(address, kDefaultStream).ok());
  TM_CHECK(ran == 1);  // no race: the free waited for it
  TM_CHECK(host_driver().stream_destroy(user).ok());
}

TM_TEST("a block whose user's stream was destroyed stays, and stays in the book") {
  const ResourcePtr resource = make_host();
  AddressBook book;
  StreamId user = 0;
  TM_CHECK(host_driver().stream_create(0, &user).ok());
  void* pointer = nullptr;
  TM_CHECK(book.allocate(resource, {.nbytes = 100}, &pointer).ok());
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  TM_CHECK(book.record_use(address, user).ok());
  TM_CHECK(host_driver().stream_destroy(user).ok());
  TM_CHECK(book.deallocate(address, kDefaultStream).code() == Code::stream_misuse);
  TM_CHECK(resource->bytes_outstanding() == 100 && book.size() == 1 && book.is_valid());
  const Block block = book.find(address)->block;
  BlockState end{};
  TM_CHECK(resource->deallocate(block, kDefaultStream, &end).ok());
}

TM_TEST("eight threads allocate, grow, check and free, and everything goes back") {
  const ResourcePtr resource = make_host();
  CAllocator allocator(resource, kUntagged);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&allocator, t] {
      std::vector<std::pair<void*, std::size_t>> mine;
      for (std::size_t i = 0; i < 400; ++i) {
        const std::size_t nbytes = 1 + (i * 97 + t * 31) % 3000;
        void* pointer = allocator.allocate_zeroed(nbytes, 1);
        TM_CHECK(all_are(pointer, 0, nbytes));
        std::memset(pointer, static_cast<int>(t), nbytes);
        pointer = allocator.reallocate(pointer, 2 * nbytes);
        mine.emplace_back(pointer, nbytes);
        if (i % 3 == 0) {
          TM_CHECK(all_are(mine.front().first, static_cast<unsigned char>(t), mine.front().second));
          allocator.deallocate(mine.front().first);
          mine.erase(mine.begin());
        }
      }
      for (const auto& [pointer, nbytes] : mine) {
        TM_CHECK(all_are(pointer, static_cast<unsigned char>(t), nbytes));
        allocator.deallocate(pointer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(resource->bytes_outstanding() == 0 && allocator.refusals().count() == 0);
  TM_CHECK(allocator.book().size() == 0 && allocator.book().is_valid());
}

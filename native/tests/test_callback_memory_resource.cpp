#include <cstdlib>
#include <map>
#include <mutex>

#include "resource/callback_memory_resource.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

// Memory that only a test can hand out: it remembers what is out, and gives what it is told to.
class Source {
 public:
  ~Source() { TM_CHECK(out_.empty()); }

  MemoryCallbacks callbacks() {
    return {.take = [this](const AllocRequest& request, std::uint64_t* address) { return take(request, address); },
            .give_back = [this](std::uint64_t address, std::uint64_t nbytes,
                                StreamId) { return give_back(address, nbytes); }};
  }
  std::size_t out() const { return out_.size(); }

  bool returns_zero = false;
  bool fails_to_take = false;
  bool fails_to_give_back = false;
  std::uint64_t shift = 0;
  std::uint64_t fixed_address = 0;

 private:
  Status take(const AllocRequest& request, std::uint64_t* address) {
    const std::lock_guard lock(mutex_);
    if (fails_to_take) return Status::fail(Code::invalid_argument, "the callback raised");
    if (returns_zero) return {};
    if (fixed_address != 0) {
      *address = fixed_address;
      return {};
    }
    void* memory = std::aligned_alloc(256, (request.nbytes + 511) / 256 * 256);
    *address = reinterpret_cast<std::uint64_t>(memory) + shift;
    out_[*address] = {memory, request.nbytes};
    return {};
  }
  Status give_back(std::uint64_t address, std::uint64_t nbytes) {
    const std::lock_guard lock(mutex_);
    if (fails_to_give_back) return Status::fail(Code::invalid_argument, "the callback raised");
    const auto found = out_.find(address);
    TM_CHECK(found != out_.end() && found->second.nbytes == nbytes);
    if (found == out_.end()) return {};
    std::free(found->second.memory);
    out_.erase(found);
    return {};
  }

  struct Taken {
    void* memory;
    std::uint64_t nbytes;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Taken> out_;
};

constexpr std::uint64_t kPromised = 256;

}  // namespace

TM_TEST("what the callbacks take and give back is the same") {
  Source source;
  CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
  for (const std::uint64_t alignment : {1, 64, 256, 512, 4096}) {
    Block block{};
    TM_CHECK(resource.allocate({.nbytes = 1000, .alignment = alignment}, &block).ok());
    TM_CHECK(block.address % alignment == 0 && source.out() == 1);
    bytes_of(block)[0] = 1;
    bytes_of(block)[999] = 1;
    TM_CHECK(deallocate(resource, block).ok());
    TM_CHECK(source.out() == 0 && resource.is_valid());
  }
}

TM_TEST("a callback that returns 0 is out of memory") {
  Source source;
  source.returns_zero = true;
  CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
  TM_CHECK(try_allocate(resource, 100) == Code::out_of_memory);
  TM_CHECK(resource.stats().total_count == 0);
}

TM_TEST("a callback that fails is told with its own failure") {
  Source source;
  source.fails_to_take = true;
  CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
  TM_CHECK(try_allocate(resource, 100) == Code::invalid_argument);
  TM_CHECK(resource.stats().total_count == 0 && resource.bytes_outstanding() == 0);
}

TM_TEST("an address that is not aligned as promised is given back and refused") {
  Source source;
  source.shift = 8;
  CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
  for (const std::uint64_t alignment : {256, 4096}) {
    Block block{};
    TM_CHECK(resource.allocate({.nbytes = 100, .alignment = alignment}, &block).code() == Code::invalid_alignment);
    TM_CHECK(source.out() == 0 && resource.stats().total_count == 0);
  }
}

TM_TEST("an address that is handed out twice is refused, and its first owner keeps it") {
  Source source;
  CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
  const Block first = allocate(resource, 100);
  source.fixed_address = first.address;
  TM_CHECK(try_allocate(resource, 100) == Code::foreign_block);
  TM_CHECK(resource.state_of(first) == BlockState::live && resource.stats().total_count == 1);
  TM_CHECK(deallocate(resource, first).ok());
  TM_CHECK(source.out() == 0 && resource.bytes_outstanding() == 0);
}

TM_TEST("a stale block whose address has a new owner is caught before the callback is called") {
  Source source;
  CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
  alignas(256) static unsigned char memory[256];
  MemoryCallbacks same{.take =
                           [](const AllocRequest&, std::uint64_t* address) {
                             *address = reinterpret_cast<std::uint64_t>(memory);
                             return Status();
                           },
                       .give_back = [](std::uint64_t, std::uint64_t, StreamId) { return Status(); }};
  CallbackMemoryResource one_place(host_driver(), 0, same, kPromised);
  const Block first = allocate(one_place, 100);
  TM_CHECK(deallocate(one_place, first).ok());
  const Block heir = allocate(one_place, 100);
  TM_CHECK(heir.address == first.address && heir.generation != first.generation);
  TM_CHECK(deallocate(one_place, first).code() == Code::use_after_free);
  TM_CHECK(one_place.prepare_block_use(first, kDefaultStream, Access::read).code() == Code::use_after_free);
  TM_CHECK(one_place.state_of(heir) == BlockState::live);
  TM_CHECK(deallocate(one_place, heir).ok());
}

TM_TEST("memory that the callback does not take back stays counted and is never handed out or freed again") {
  Source source;
  {
    CallbackMemoryResource resource(host_driver(), 0, source.callbacks(), kPromised);
    const Block block = allocate(resource, 100);
    source.fails_to_give_back = true;
    TM_CHECK(deallocate(resource, block).code() == Code::invalid_argument);
    source.fails_to_give_back = false;
    TM_CHECK(resource.bytes_outstanding() == 100 && resource.stats().retired_count == 1 && resource.is_valid());
    TM_CHECK(resource.state_of(block) == BlockState::retired);
    TM_CHECK(deallocate(resource, block).code() == Code::use_after_free);
    TM_CHECK(resource.reap_pending().ok());
    TM_CHECK(resource.bytes_outstanding() == 100);
    TM_CHECK(source.callbacks().give_back(block.address, 100, kDefaultStream).ok());  // the test cleans up
  }
  TM_CHECK(source.out() == 0);
}

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "resource/plain_memory_resource.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

PlainMemoryResource make() { return {host_driver(), 0, AllocationOptions{}}; }

Block allocate(Resource& resource, std::uint64_t nbytes, StreamId stream = kDefaultStream) {
  Block block{};
  TM_CHECK(resource.allocate({.nbytes = nbytes, .stream = stream}, &block).ok());
  return block;
}

Status deallocate(Resource& resource, const Block& block, StreamId stream = kDefaultStream) {
  BlockState end{};
  return resource.deallocate(block, stream, &end);
}

struct Gate {
  std::atomic<bool> is_open{false};
  void open() {
    is_open.store(true);
    is_open.notify_all();
  }
  static void wait(void* self) { static_cast<Gate*>(self)->is_open.wait(false); }
};

void touch(void* address) { std::memset(address, 0x5a, 4096); }

void read_back(void* address) {
  const auto* bytes = static_cast<const unsigned char*>(address);
  for (int i = 0; i < 4096; ++i) TM_CHECK(bytes[i] == 0x5a);
}

}  // namespace

TM_TEST("a block is allocated, used on two streams, deallocated and reaped") {
  auto resource = make();
  StreamId writer = 0;
  StreamId reader = 0;
  TM_CHECK(host_driver().stream_create(0, &writer).ok());
  TM_CHECK(host_driver().stream_create(0, &reader).ok());
  Gate gate;
  const Block block = allocate(resource, 4096, writer);
  auto* bytes = reinterpret_cast<void*>(block.address);

  TM_CHECK(host_driver().launch_host(&Gate::wait, &gate, writer).ok());
  TM_CHECK(resource.prepare_block_use(block, writer, Access::write).ok());
  TM_CHECK(host_driver().launch_host(&touch, bytes, writer).ok());
  TM_CHECK(resource.finish_block_use(block, writer, Access::write).ok());

  TM_CHECK(resource.prepare_block_use(block, reader, Access::read).ok());
  TM_CHECK(host_driver().launch_host(&read_back, bytes, reader).ok());
  TM_CHECK(resource.finish_block_use(block, reader, Access::read).ok());

  TM_CHECK(deallocate(resource, block, writer).ok());
  TM_CHECK(resource.state_of(block) == BlockState::retired);
  TM_CHECK(resource.bytes_outstanding() == 4096);
  TM_CHECK(resource.reap_pending().ok());
  TM_CHECK(resource.bytes_outstanding() == 4096);  // the gate is shut: nothing is proven

  gate.open();
  TM_CHECK(host_driver().stream_synchronize(writer).ok());
  TM_CHECK(resource.reap_pending().ok());
  TM_CHECK(resource.bytes_outstanding() == 0);
  TM_CHECK(resource.state_of(block) == BlockState::freed);
  TM_CHECK(resource.is_valid());
  TM_CHECK(host_driver().stream_destroy(reader).ok());
  TM_CHECK(host_driver().stream_destroy(writer).ok());
}

TM_TEST("a double free is caught, before and after the stream has passed") {
  auto resource = make();
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::wait, &gate, stream).ok());
  const Block block = allocate(resource, 100, stream);
  TM_CHECK(deallocate(resource, block, stream).ok());
  TM_CHECK(deallocate(resource, block, stream).code() == Code::use_after_free);
  gate.open();
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(resource.reap_pending().ok());
  TM_CHECK(deallocate(resource, block, stream).code() == Code::use_after_free);
  TM_CHECK(resource.stats().current_count == 0 && resource.stats().retired_count == 0);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("a block of another resource is foreign and changes nothing") {
  auto resource = make();
  auto other = make();
  const Block block = allocate(other, 64);
  TM_CHECK(deallocate(resource, block).code() == Code::foreign_block);
  TM_CHECK(other.state_of(block) == BlockState::live);
  TM_CHECK(deallocate(other, block).ok());
}

TM_TEST("bad sizes, alignments and streams are refused and change nothing") {
  auto resource = make();
  Block block{};
  TM_CHECK(resource.allocate({.nbytes = 0}, &block).code() == Code::invalid_size);
  TM_CHECK(resource.allocate({.nbytes = ~0ULL}, &block).code() == Code::invalid_size);
  TM_CHECK(resource.allocate({.nbytes = 1, .alignment = 3}, &block).code() == Code::invalid_alignment);
  TM_CHECK(resource.allocate({.nbytes = 1, .alignment = 0}, &block).code() == Code::invalid_alignment);
  TM_CHECK(resource.allocate({.nbytes = 1, .stream = 12345}, &block).code() == Code::stream_misuse);
  TM_CHECK(resource.allocate({.nbytes = 1ULL << 60}, &block).code() == Code::out_of_memory);
  TM_CHECK(resource.stats().total_count == 0 && resource.bytes_outstanding() == 0);
}

TM_TEST("a block given back on a destroyed stream stays live") {
  auto resource = make();
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  const Block block = allocate(resource, 64, stream);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(deallocate(resource, block, stream).code() == Code::stream_misuse);
  TM_CHECK(resource.state_of(block) == BlockState::live);
  TM_CHECK(deallocate(resource, block).ok());
}

TM_TEST("eight threads allocate, use and free at once and every counter adds up") {
  auto resource = make();
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&resource] {
      StreamId stream = 0;
      TM_CHECK(host_driver().stream_create(0, &stream).ok());
      for (int i = 0; i < kRounds; ++i) {
        const Block block = allocate(resource, 4096, stream);
        TM_CHECK(resource.prepare_block_use(block, stream, Access::write).ok());
        TM_CHECK(host_driver().launch_host(&touch, reinterpret_cast<void*>(block.address), stream).ok());
        TM_CHECK(resource.finish_block_use(block, stream, Access::write).ok());
        TM_CHECK(deallocate(resource, block, i % 2 == 0 ? stream : kDefaultStream).ok());
        if (i % 16 == 0) TM_CHECK(resource.reap_pending().ok());
      }
      TM_CHECK(host_driver().stream_synchronize(stream).ok());
      TM_CHECK(resource.reap_pending().ok());
      TM_CHECK(host_driver().stream_destroy(stream).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(resource.reap_pending().ok());
  TM_CHECK(resource.bytes_outstanding() == 0);
  TM_CHECK(resource.stats().total_count == kThreads * kRounds);
  TM_CHECK(resource.is_valid());
}

TM_TEST("generations are unique over resources and threads") {
  auto one = make();
  auto two = make();
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    for (PlainMemoryResource* each : {&one, &two}) {
      const Block block = allocate(*each, 16);
      TM_CHECK(seen.insert(block.generation).second);
      TM_CHECK(deallocate(*each, block).ok());
    }
  }
}

// Owns: what tests of resources need again and again: a leaf over the host, one-line calls, and a stream that waits.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "resource/plain_memory_resource.hpp"
#include "tests/check.hpp"

namespace tensormem::test {

inline std::shared_ptr<PlainMemoryResource> make_leaf(Driver& driver = host_driver()) {
  return std::make_shared<PlainMemoryResource>(driver, 0, AllocationOptions{});
}

inline Block allocate(Resource& resource, std::uint64_t nbytes, StreamId stream = kDefaultStream,
                      TagId tag = kUntagged) {
  Block block{};
  TM_CHECK(resource.allocate({.nbytes = nbytes, .stream = stream, .tag = tag}, &block).ok());
  return block;
}

inline Code try_allocate(Resource& resource, std::uint64_t nbytes) {
  Block block{};
  return resource.allocate({.nbytes = nbytes}, &block).code();
}

inline Status deallocate(Resource& resource, const Block& block, StreamId stream = kDefaultStream) {
  BlockState end{};
  return resource.deallocate(block, stream, &end);
}

inline unsigned char* bytes_of(const Block& block) { return reinterpret_cast<unsigned char*>(block.address); }

// A stream whose first piece of work waits for `open`: everything behind it is pending until then.
class GatedStream {
 public:
  GatedStream() {
    TM_CHECK(host_driver().stream_create(0, &id_).ok());
    TM_CHECK(host_driver().launch_host(&wait_for_gate, this, id_).ok());
  }
  ~GatedStream() {
    open();
    TM_CHECK(host_driver().stream_destroy(id_).ok());
  }
  GatedStream(const GatedStream&) = delete;
  GatedStream& operator=(const GatedStream&) = delete;

  StreamId id() const { return id_; }
  void open() {
    is_open_.store(true);
    is_open_.notify_all();
  }
  void pass() {
    open();
    TM_CHECK(host_driver().stream_synchronize(id_).ok());
  }

 private:
  static void wait_for_gate(void* self) { static_cast<GatedStream*>(self)->is_open_.wait(false); }

  std::atomic<bool> is_open_{false};
  StreamId id_ = 0;
};

// Runs `body(number)` on so many threads at once and waits for all of them.
template <typename Body>
void on_threads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number) threads.emplace_back(body, number);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tensormem::test

#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "resource/device_hooks.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/plain_memory_resource.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

// As PyTorch keeps them.
const std::function<void*(std::size_t, int, void*)> torch_allocate = &tensormem_allocate_or_throw;
const std::function<void(void*, std::size_t, int, void*)> torch_deallocate = &tensormem_deallocate;

DeviceHooks& hooks() { return DeviceHooks::instance(); }

struct Registered {
  explicit Registered(ResourcePtr resource, int device = 0) : device_(device) {
    TM_CHECK(hooks().set(device, std::move(resource), intern_tag("torch")).ok());
  }
  ~Registered() { TM_CHECK(hooks().set(device_, nullptr, kUntagged).ok()); }
  const int device_;
};

ResourcePtr make_host() { return std::make_shared<PlainMemoryResource>(host_driver(), 0, AllocationOptions{}); }

void* as_handle(StreamId stream) { return reinterpret_cast<void*>(stream); }

}  // namespace

TM_TEST("a caller with C++ gets an exception with the reason instead of a null pointer") {
  const auto limited = std::make_shared<LimitingResourceAdaptor>(make_host(), 1000);
  const Registered registered(limited);
  void* pointer = torch_allocate(600, 0, nullptr);
  TM_CHECK(pointer != nullptr && limited->bytes_outstanding() == 600);
  std::string said;
  try {
    torch_allocate(600, 0, nullptr);
  } catch (const std::bad_alloc& refused) {
    said = refused.what();
  }
  TM_CHECK(said.find("600 bytes on device 0: OutOfBudget") != std::string::npos);
  TM_CHECK(hooks().refusals().last()->code() == Code::out_of_budget);
  torch_deallocate(pointer, 600, 0, nullptr);
  TM_CHECK(limited->bytes_outstanding() == 0);
}

TM_TEST("a device without a resource is refused, thrown and null") {
  const std::uint64_t before = hooks().refusals().count();
  bool thrown = false;
  try {
    torch_allocate(10, 5, nullptr);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  TM_CHECK(thrown && tensormem_allocate(10, 5, nullptr) == nullptr && tensormem_allocate(10, -1, nullptr) == nullptr);
  TM_CHECK(hooks().refusals().count() == before + 3);
  TM_CHECK(hooks().set(DeviceHooks::kMaxDevices, make_host(), kUntagged).code() == Code::invalid_argument);
}

TM_TEST("memory that is out keeps its resource after another took its place") {
  ResourcePtr first = make_host();
  const std::weak_ptr<Resource> seen = first;
  void* pointer = nullptr;
  {
    const Registered registered(std::move(first));
    pointer = tensormem_allocate(100, 0, nullptr);
  }
  const Registered registered(make_host());
  TM_CHECK(!seen.expired() && seen.lock()->bytes_outstanding() == 100);
  tensormem_deallocate(pointer, 100, 0, nullptr);
  TM_CHECK(seen.expired() && hooks().book().size() == 0);
}

TM_TEST("the end of a block waits for recorded streams as they are when it is freed") {
  const ResourcePtr resource = make_host();
  const Registered registered(resource);
  StreamId owner = 0;
  StreamId user = 0;
  TM_CHECK(host_driver().stream_create(0, &owner).ok() && host_driver().stream_create(0, &user).ok());
  std::atomic<bool> open{false};
  void* pointer = tensormem_allocate(100, 0, as_handle(owner));
  tensormem_record_stream(pointer, as_handle(user));
  TM_CHECK(host_driver()
               .launch_host([](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }, &open, user)
               .ok());
  tensormem_deallocate(pointer, 100, 0, as_handle(owner));
  TM_CHECK(resource->reap_pending().ok() && resource->bytes_outstanding() == 100);
  open.store(true);
  open.notify_all();
  TM_CHECK(host_driver().stream_synchronize(owner).ok() && resource->reap_pending().ok());
  TM_CHECK(resource->bytes_outstanding() == 0);
  TM_CHECK(host_driver().stream_destroy(owner).ok() && host_driver().stream_destroy(user).ok());
}

TM_TEST("eight threads free each other's memory while resources are exchanged") {
  const ResourcePtr one = make_host();
  const ResourcePtr two = make_host();
  TM_CHECK(hooks().set(0, one, kUntagged).ok());
  const std::uint64_t before = hooks().refusals().count();
  std::vector<std::atomic<void*>> places(64);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 500; ++i) {
        void* pointer = tensormem_allocate(1 + (i * 37) % 2000, 0, nullptr);
        std::memset(pointer, 1, 1);
        tensormem_deallocate(places[(i * 7 + t * 13) % places.size()].exchange(pointer), 0, 0, nullptr);
        if (i % 50 == 0) TM_CHECK(hooks().set(0, i % 100 == 0 ? one : two, kUntagged).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<void*>& place : places) tensormem_deallocate(place.load(), 0, 0, nullptr);
  TM_CHECK(hooks().set(0, nullptr, kUntagged).ok());
  TM_CHECK(one->bytes_outstanding() == 0 && two->bytes_outstanding() == 0);
  TM_CHECK(hooks().refusals().count() == before && hooks().book().size() == 0 && hooks().book().is_valid());
}

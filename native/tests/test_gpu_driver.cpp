// The GPU drivers on the simulated GPU, without Python: threads, pools over stream-ordered memory, pages.
#include <thread>
#include <vector>

#include "driver/gpu/gpu_driver.hpp"
#include "driver/gpu/open.hpp"
#include "resource/async_memory_resource.hpp"
#include "resource/plain_memory_resource.hpp"
#include "resource/pool_memory_resource.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

// One platform a vendor for the whole program: TENSORMEM_SIMGPU says what it looks like.
GpuPlatform* platform_of(const char* vendor) {
  static GpuPlatform* cuda = nullptr;
  static GpuPlatform* rocm = nullptr;
  const bool is_cuda = std::string(vendor) == "cuda";
  GpuPlatform*& known = is_cuda ? cuda : rocm;
  std::string why;
  if (known == nullptr) known = open_gpu_platform(vendor, is_cuda ? TM_SIMGPU_CUDA : TM_SIMGPU_HIP, &why);
  if (known == nullptr) std::fprintf(stderr, "%s\n", why.c_str());
  return known;
}

void churn(Resource& resource, Driver& driver, unsigned seed) {
  StreamId stream = 0;
  TM_CHECK(driver.stream_create(resource.device(), &stream).ok());
  std::vector<Block> held;
  for (unsigned step = 0; step < 200; ++step) {
    Block block{};
    const std::uint64_t nbytes = 1 + (seed * 7919 + step * 104729) % 20000;
    TM_CHECK(resource.allocate({.nbytes = nbytes, .stream = stream}, &block).ok());
    TM_CHECK(driver.fill({block.address, resource.device(), nbytes, nbytes}, {nbytes, 1, 1}, seed, 1, stream).ok());
    held.push_back(block);
    if (held.size() < 8) continue;
    BlockState end{};
    TM_CHECK(resource.deallocate(held[step % 8], stream, &end).ok());
    held.erase(held.begin() + step % 8);
  }
  for (const Block& block : held) {
    BlockState end{};
    TM_CHECK(resource.deallocate(block, stream, &end).ok());
  }
  TM_CHECK(driver.stream_destroy(stream).ok());
}

void churn_in_threads(Resource& resource, Driver& driver) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back([&, seed] { churn(resource, driver, seed); });
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(resource.reap_pending().ok());
  TM_CHECK(resource.bytes_outstanding() == 0);
}

void check_resources(const char* vendor) {
  GpuPlatform* const platform = platform_of(vendor);
  TM_CHECK(platform != nullptr);
  if (platform == nullptr) return;
  Driver& driver = *platform->driver(1);
  const auto plain = std::make_shared<PlainMemoryResource>(driver, 1, AllocationOptions{});
  std::shared_ptr<AsyncMemoryResource> ordered;
  TM_CHECK(AsyncMemoryResource::create(driver, 1, ~0ULL, &ordered).ok());
  std::shared_ptr<PoolMemoryResource> pool;
  std::shared_ptr<PoolMemoryResource> ordered_pool;
  TM_CHECK(PoolMemoryResource::create(plain, {}, &pool).ok());
  TM_CHECK(PoolMemoryResource::create(ordered, {}, &ordered_pool).ok());
  churn_in_threads(*plain, driver);
  churn_in_threads(*ordered, driver);
  churn_in_threads(*pool, driver);
  churn_in_threads(*ordered_pool, driver);
  TM_CHECK(plain->is_valid() && ordered->is_valid() && pool->is_valid() && ordered_pool->is_valid());
}

void check_pages(const char* vendor) {
  GpuPlatform* const platform = platform_of(vendor);
  TM_CHECK(platform != nullptr);
  if (platform == nullptr) return;
  Driver& driver = *platform->driver(0);
  Granularity grain;
  std::uint64_t address = 0;
  PhysicalHandle page = 0;
  TM_CHECK(driver.granularity(0, &grain).ok());
  TM_CHECK(driver.reserve(2 * grain.minimum, grain.minimum, &address).ok());
  TM_CHECK(driver.physical_create(0, grain.minimum, {}, &page).ok());
  TM_CHECK(driver.map(address, grain.minimum, page, 0).ok());
  TM_CHECK(driver.map(address, grain.minimum, page, 0).code() == Code::already_mapped);
  TM_CHECK(driver.map(address + grain.minimum, grain.minimum, page, grain.minimum).code() == Code::invalid_offset);
  TM_CHECK(driver.release(address, 2 * grain.minimum).code() == Code::still_mapped);
  TM_CHECK(driver.set_access(address, grain.minimum, 0, AccessFlags::read_write).ok());
  const std::uint64_t size = grain.minimum;
  TM_CHECK(driver.fill({address, 0, size, size}, {size, 1, 1}, 7, 1, kDefaultStream).ok());
  TM_CHECK(driver.stream_synchronize(kDefaultStream).ok());
  TM_CHECK(driver.unmap(address + grain.minimum, grain.minimum).code() == Code::not_mapped);
  TM_CHECK(driver.unmap(address, grain.minimum / 2).code() == Code::invalid_argument);
  TM_CHECK(driver.unmap(address, grain.minimum).ok());
  TM_CHECK(driver.physical_destroy(page).ok());
  TM_CHECK(driver.physical_destroy(page).code() == Code::invalid_argument);
  TM_CHECK(driver.release(address, 2 * grain.minimum).ok());
  TM_CHECK(platform->held().physicals == 0 && platform->held().reservations == 0);
}

}  // namespace

TM_TEST("four threads churn every kind of memory of a CUDA device") { check_resources("cuda"); }

TM_TEST("four threads churn every kind of memory of a ROCm device") { check_resources("rocm"); }

TM_TEST("pages of a CUDA device are refused with facts and taken down") { check_pages("cuda"); }

TM_TEST("pages of a ROCm device are refused with facts and taken down") { check_pages("rocm"); }

TM_TEST("a library that is not there is no platform, and says why") {
  std::string why;
  TM_CHECK(open_gpu_platform("cuda", "/nowhere/libcuda.so.1", &why) == nullptr);
  TM_CHECK(why.find("cannot be opened") != std::string::npos);
  TM_CHECK(open_gpu_platform("nobody", "", &why) == nullptr);
}

TM_TEST("a closed platform refuses everything") {
  std::string why;
  GpuPlatform* const platform = open_gpu_platform("cuda", TM_SIMGPU_CUDA, &why);
  StreamId stream = 0;
  TM_CHECK(platform != nullptr);
  if (platform == nullptr) return;
  TM_CHECK(platform->driver(0)->stream_create(0, &stream).ok());
  TM_CHECK(platform->driver(0)->stream_destroy(stream).ok());
  platform->close();
  TM_CHECK(platform->driver(0)->stream_create(0, &stream).code() == Code::not_supported);
  TM_CHECK(!platform->driver(0)->stream_is_valid(kDefaultStream));
}

#include "driver/gpu/open.hpp"

#include "driver/cuda/cuda_api.hpp"
#include "driver/gpu/gpu_driver.hpp"
#include "driver/hip/hip_api.hpp"

namespace tensormem {

GpuPlatform* open_gpu_platform(const std::string& vendor, const std::string& path, std::string* why, bool count) {
  std::unique_ptr<gpu::GpuApi> api;
  if (vendor == "cuda") {
    api = cuda::open_api(path, count, why);
  } else if (vendor == "rocm") {
    api = hip::open_api(path, count, why);
  } else {
    *why = "there is no such vendor";
  }
  return api == nullptr ? nullptr : new GpuPlatform(std::move(api));
}

Driver* gpu_driver(GpuPlatform& platform, std::int32_t device) noexcept { return platform.driver(device); }

bool share_streams(const Driver& one, const Driver& other) noexcept {
  const auto* const first = dynamic_cast<const GpuDriver*>(&one);
  const auto* const second = dynamic_cast<const GpuDriver*>(&other);
  return first != nullptr && second != nullptr && &first->platform() == &second->platform();
}

}  // namespace tensormem

// Owns: which vendors there are. Adding one is a folder beside cuda/ and a line in open.cpp.
// Must not know: what the platform is used for.
#pragma once

#include <string>

#include "driver/driver.hpp"
#include "driver/gpu/gpu_platform.hpp"

namespace tensormem {

// The platform of `vendor` ("cuda" or "rocm"), from the library at `path`, or from the system's when it is empty. Null,
// and why, when it does not work here. With `count` its calls are counted. Never destroyed.
GpuPlatform* open_gpu_platform(const std::string& vendor, const std::string& path, std::string* why,
                               bool count = false);

Driver* gpu_driver(GpuPlatform& platform, std::int32_t device) noexcept;
// Whether both belong to one platform, so that either takes the other's streams.
bool share_streams(const Driver& one, const Driver& other) noexcept;

}  // namespace tensormem

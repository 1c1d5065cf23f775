// Owns: what the memory of a device is called in traces. Must not know: who asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "driver/driver.hpp"

namespace tensormem {

// "main", or "gpu:1".
inline std::string space_of(const Driver& driver, std::int32_t device) {
  return std::string_view(driver.name()) == "host" ? "main" : "gpu:" + std::to_string(device);
}

// The same where no device is named: "main", "cuda".
inline std::string_view space_of_driver(const Driver& driver) {
  const std::string_view name = driver.name();
  return name == "host" ? "main" : name;
}

}  // namespace tensormem

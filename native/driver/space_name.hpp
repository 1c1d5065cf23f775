// Owns: what the memory of a device is called in traces. Must not know: who asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "driver/driver.hpp"

namespace tensormem {

// Memory that is not there counts as main, wherever it is asked about.
inline bool is_of_main(const Driver& driver) {
  const std::string_view name = driver.name();
  return name == "host" || name == "abstract";
}

// "main", or "gpu:1".
inline std::string space_of(const Driver& driver, std::int32_t device) {
  return is_of_main(driver) ? "main" : "gpu:" + std::to_string(device);
}

// The same where no device is named: "main", "cuda".
inline std::string_view space_of_driver(const Driver& driver) {
  return is_of_main(driver) ? "main" : std::string_view(driver.name());
}

}  // namespace tensormem

// Owns: what the tests of virtual memory share: makers that check themselves, and looks at the bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "driver/host/host_driver.hpp"
#include "driver/host/os.hpp"
#include "tests/check.hpp"
#include "tests/host_process.hpp"

namespace tensormem::test {

// The smallest page: 4, 16 or 64 KiB.
inline const std::uint64_t kSmall = host::os::page_size();
inline constexpr std::uint64_t kPage = 2 << 20;

inline volatile char* bytes_at(std::uint64_t address) { return reinterpret_cast<volatile char*>(address); }

inline std::uint64_t new_range(std::uint64_t size, std::uint64_t alignment = kPage) {
  std::uint64_t address = 0;
  TM_CHECK(host_driver().reserve(size, alignment, &address).ok());
  return address;
}

inline PhysicalHandle new_physical(std::uint64_t size, const PhysicalOptions& options = {}) {
  PhysicalHandle physical = kNoPhysical;
  TM_CHECK(host_driver().physical_create(0, size, options, &physical).ok());
  return physical;
}

inline void map_writable(std::uint64_t address, std::uint64_t size, PhysicalHandle physical, std::uint64_t offset = 0) {
  TM_CHECK(host_driver().map(address, size, physical, offset).ok());
  TM_CHECK(host_driver().set_access(address, size, 0, AccessFlags::read_write).ok());
}

inline bool all_are(std::uint64_t address, std::uint64_t size, char value) {
  const char* const bytes = reinterpret_cast<const char*>(address);
  return bytes[0] == value && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

inline bool is_clean() {
  return test::holds_nothing() && host_driver().counters().leftovers == 0 && host_driver().is_valid();
}

}  // namespace tensormem::test

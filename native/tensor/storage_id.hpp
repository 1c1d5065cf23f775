// Owns: the identity of storages, a number that is never given twice in a process.
// Must not know: what a storage is.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensormem {

inline std::uint64_t next_storage_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace tensormem

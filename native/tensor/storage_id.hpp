// Owns: the identity of storages, a number that is never given twice in a process, and how often one is exported.
// Must not know: what a storage is.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensormem {

inline std::uint64_t next_storage_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// How many outside hold the address. Taken and given back by any thread; starts at zero as plain zeroed memory does.
class ExportCount {
 public:
  void take() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void give_back() noexcept { count_.fetch_sub(1, std::memory_order_release); }
  std::int64_t held() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::int64_t> count_{0};
};

}  // namespace tensormem

// Owns: the addresses that calls were given as plain numbers and use at this moment. Whoever is about to give memory
// back asks whether any lie in it; while there are none, that is one load.
// Must not know: whose memory it is, or what the call does.
// Thread-safe. A use of another thread does not exist in a process that was forked meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensormem {

extern std::atomic<std::uint64_t> g_used_ranges;

// One use, from `begin` to `end` or its destruction. It allocates nothing and cannot fail.
class UsedRange {
 public:
  UsedRange() = default;
  ~UsedRange() { end(); }
  UsedRange(const UsedRange&) = delete;
  UsedRange& operator=(const UsedRange&) = delete;

  // At least the byte at `address`, as long as it is not known how far the call reaches.
  void begin(std::uint64_t address) noexcept;
  void reach(std::uint64_t nbytes) noexcept;
  void end() noexcept;

 private:
  friend std::uint64_t count_uses(std::uint64_t, std::uint64_t) noexcept;

  std::uint64_t address_ = 0;
  std::uint64_t nbytes_ = 0;  // 0: not begun
  int process_ = 0;
  UsedRange* previous_ = nullptr;
  UsedRange* next_ = nullptr;
};

// How many uses of any byte there are.
std::uint64_t count_uses(std::uint64_t address, std::uint64_t nbytes) noexcept;

inline bool any_used() noexcept { return g_used_ranges.load(std::memory_order_acquire) != 0; }
inline bool is_used(std::uint64_t address, std::uint64_t nbytes) noexcept {
  return any_used() && count_uses(address, nbytes) != 0;
}

}  // namespace tensormem

// Owns: how much memory this process can still get: what the kernel says is available, bounded by the control groups
// (version 1 and 2) that the process lives in. Also the promise not to commit the same free bytes twice at once.
// Must not know: who asks.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

class MemoryGauge {
 public:
  // `root` comes before every path; tests put files of their own under it. The text must outlive the gauge.
  explicit MemoryGauge(const char* root = "") noexcept : root_(root) {}

  // Reads the system's files each time (about 10 us).
  Status read(MemoryInfo* info) const noexcept;
  // All bytes the process could ever have. Cached; `is_too_large` looks again before it says yes.
  bool is_too_large(std::uint64_t nbytes) noexcept;

  // Claim free bytes for memory that is about to be committed, or `out_of_physical_memory`. Give the claim back once
  // the pages exist (the kernel counts them from then on) or the attempt is over.
  Status claim(std::uint64_t nbytes) noexcept;
  void give_back(std::uint64_t nbytes) noexcept { claimed_.fetch_sub(nbytes, std::memory_order_relaxed); }
  std::uint64_t claimed_bytes() const noexcept { return claimed_.load(std::memory_order_relaxed); }
  // Claims of the parent's other threads mean nothing in the child.
  void after_fork_in_child() noexcept { claimed_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kFreshNanoseconds = 20'000'000;
  bool claim_from_slack(std::uint64_t nbytes) noexcept;

  const char* root_;
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> slack_{0};  // may be claimed without reading again
  std::atomic<std::uint64_t> read_at_{0};
};

// The number after `key` at the start of a line, e.g. ("MemTotal:       24 kB\n", "MemTotal:") -> 24.
bool find_number(const char* text, const char* key, std::uint64_t* number) noexcept;

}  // namespace tensormem::host

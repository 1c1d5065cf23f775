// Owns: how physical memory is admitted: whoever wants pages asks a budget first, and tells it when they are gone.
// Must not know: pages, addresses, who asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.hpp"

namespace tensormem {

class Budget {
 public:
  virtual ~Budget() = default;

  // All of `bytes`, or `out_of_physical_memory(requested, available)` and nothing. May ask others to give back, so
  // callers hold no lock.
  virtual Status claim(std::uint64_t bytes) noexcept = 0;
  // The same for what is nice to have (pages made ahead): asks nobody to give back.
  virtual Status try_claim(std::uint64_t bytes) noexcept = 0;
  virtual void give_back(std::uint64_t bytes) noexcept = 0;
  virtual std::uint64_t limit() const noexcept = 0;
  virtual std::uint64_t used() const noexcept = 0;
};

using BudgetPtr = std::shared_ptr<Budget>;

// One limit in one process, which can change at any time. Lowered below what is used, it refuses until enough is back.
class LocalBudget final : public Budget {
 public:
  static constexpr std::uint64_t kUnlimited = ~0ULL >> 1;

  explicit LocalBudget(std::uint64_t limit) noexcept : limit_(limit) {}

  Status claim(std::uint64_t bytes) noexcept override {
    std::uint64_t before = used_.load();
    do {
      const std::uint64_t most = limit_.load();
      if (before > most || bytes > most - before) {
        return Status::fail(Code::out_of_physical_memory, "the physical limit is reached", bytes,
                            before > most ? 0 : most - before);
      }
    } while (!used_.compare_exchange_weak(before, before + bytes));
    return {};
  }
  Status try_claim(std::uint64_t bytes) noexcept override { return claim(bytes); }
  void give_back(std::uint64_t bytes) noexcept override { used_.fetch_sub(bytes); }
  std::uint64_t limit() const noexcept override { return limit_.load(); }
  std::uint64_t used() const noexcept override { return used_.load(); }
  void set_limit(std::uint64_t limit) noexcept { limit_.store(limit); }

 private:
  std::atomic<std::uint64_t> limit_;
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace tensormem

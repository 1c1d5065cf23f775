// Owns: a budget in bytes over an upstream. What is charged is what was asked for and not yet really free, and what was
// promised by `reserve`; one atomic number, so it is exact under threads.
//   More than the limit at once: refused without touching the upstream. No room: reap, try again, then refuse.
//   The limit may change at any time; lowered below what is charged, it refuses until enough has come back.
// Must not know: what the memory is for.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

class LimitingResourceAdaptor final : public ResourceAdaptor {
 public:
  LimitingResourceAdaptor(ResourcePtr upstream, std::uint64_t limit)
      : ResourceAdaptor(std::move(upstream)), limit_(limit) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  // Two numbers that others may be changing: between the two looks a promise may have been made.
  std::uint64_t bytes_outstanding() const override {
    const std::uint64_t in_all = charged();
    const std::uint64_t for_promises = promised();
    return in_all > for_promises ? in_all - for_promises : 0;
  }
  Status reap_pending() override;

  std::uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::uint64_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  // Blocks and promises together.
  std::uint64_t charged() const { return charged_.load(std::memory_order_relaxed); }
  std::uint64_t promised() const { return promised_.load(std::memory_order_relaxed); }

  // A promise of `nbytes` for allocations to come; each draws from it instead of the common room.
  Status promise(std::uint64_t nbytes);
  // No more than what is still promised.
  void withdraw_promise(std::uint64_t nbytes);
  // The bytes are part of a promise already: they become a block, or go back to the promise.
  Status allocate_promised(const AllocRequest& request, Block* block);

 private:
  Status charge(std::uint64_t nbytes);
  bool try_charge(std::uint64_t nbytes, std::uint64_t* current, std::uint64_t* limit);

  std::atomic<std::uint64_t> limit_;
  std::atomic<std::uint64_t> charged_{0};
  std::atomic<std::uint64_t> promised_{0};
  std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::vector<Block> retired_;  // given back, not free yet, still charged
};

}  // namespace tensormem

// Owns: a gauge with two marks. Use is what passed through and is not yet really free; crossing `warn` or `critical`
// upward changes the level at once, falling back needs `hysteresis` bytes less, so that a level does not flutter.
//   On every change of level the callback hears of it; at critical it is asked to reclaim before each allocation, again
//   and again, until the level falls.
// Must not know: who reclaims what. The callback is called without any lock of ours and may allocate and free.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

enum class PressureLevel : std::uint8_t { normal = 0, warn = 1, critical = 2 };

struct PressureMarks {
  std::uint64_t warn = 0;
  std::uint64_t critical = 0;
  std::uint64_t hysteresis = 0;
};

class PressureResourceAdaptor final : public ResourceAdaptor {
 public:
  using Callback = std::function<Status(PressureLevel level, std::uint64_t used)>;

  PressureResourceAdaptor(ResourcePtr upstream, const PressureMarks& marks, Callback callback)
      : ResourceAdaptor(std::move(upstream)), marks_(marks), callback_(std::move(callback)) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override { return used_.load(std::memory_order_relaxed); }
  Status reap_pending() override;

  PressureLevel level() const { return level_.load(std::memory_order_relaxed); }

 private:
  PressureLevel level_at(std::uint64_t used, PressureLevel before) const;
  // Sets the level that the use calls for; true when that changed it.
  bool update();
  Status tell_if_changed();
  // Not while this thread is in the callback already: it may allocate and free without being asked again.
  Status tell(PressureLevel level);

  const PressureMarks marks_;
  const Callback callback_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<PressureLevel> level_{PressureLevel::normal};
  std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::vector<Block> retired_;  // given back, not free yet, still counted
};

}  // namespace tensormem

// Owns: finding out that somebody else reset a device (cuDevicePrimaryCtxReset, hipDeviceReset) and took with it what
// we had there: an event of ours on each device is the witness. From then on the device gives nothing more, since its
// addresses may be somebody else's, and what we had counts as given back.
// Must not know: which vendor it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/gpu/gpu_api.hpp"

namespace tensormem {

class GpuPlatform;

namespace gpu {

class ContextWatch {
 public:
  explicit ContextWatch(GpuPlatform& platform);

  // Before something is made on a device, or given back to it. The first call begins to watch.
  Status check(std::int32_t device) noexcept;
  // The same question without a failure to tell.
  bool is_reset(std::int32_t device) noexcept { return !check(device).ok(); }
  // An answer that may come from a reset is told by that name.
  Status explain(Status status, std::int32_t device) noexcept;
  void end() noexcept;

 private:
  enum class State : std::uint8_t { unwatched, watched, reset };
  struct Witness {
    std::atomic<State> state{State::unwatched};
    std::atomic<NativeEvent> event{nullptr};
  };

  void begin(std::int32_t device) noexcept;

  GpuPlatform& platform_;
  std::vector<Witness> witnesses_;  // by device
};

}  // namespace gpu

}  // namespace tensormem

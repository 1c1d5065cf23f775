#include "driver/gpu/context_watch.hpp"

#include "driver/gpu/gpu_platform.hpp"

namespace tensormem::gpu {

ContextWatch::ContextWatch(GpuPlatform& platform)
    : platform_(platform), witnesses_(static_cast<std::size_t>(platform.device_count())) {}

// Where no witness can be had there is no watch, and what the driver answers is told as it is.
void ContextWatch::begin(std::int32_t device) noexcept {
  Witness& witness = witnesses_[static_cast<std::size_t>(device)];
  NativeEvent made = nullptr;
  if (!platform_.api().event_create(device, false, &made).ok()) return;
  NativeEvent none = nullptr;
  if (witness.event.compare_exchange_strong(none, made)) {
    witness.state = State::watched;
  } else {
    (void)platform_.api().event_destroy({made, device, false}).ok();
  }
}

Status ContextWatch::check(std::int32_t device) noexcept {
  Witness& witness = witnesses_[static_cast<std::size_t>(device)];
  GpuApi& api = platform_.api();
  if (witness.state == State::unwatched) {
    begin(device);
    return {};
  }
  if (witness.state == State::watched) {
    bool done = false;
    const Status asked = api.event_query({witness.event, device, false}, &done);
    if (asked.ok() || !api.is_gone(asked.failure().driver_code)) return {};
    witness.state = State::reset;
  }
  constexpr std::int32_t kContextIsDestroyed = 709;  // in both vendors' numbers
  return vendor_error(api.numbers(), kContextIsDestroyed, "a device that somebody else reset");
}

Status ContextWatch::explain(Status status, std::int32_t device) noexcept {
  if (status.ok() || status.code() != Code::driver_error) return status;
  Status reset = check(device);
  return reset.ok() ? std::move(status) : std::move(reset);
}

void ContextWatch::end() noexcept {
  for (std::size_t device = 0; device < witnesses_.size(); ++device) {
    const NativeEvent event = witnesses_[device].event;
    if (witnesses_[device].state == State::watched)
      (void)platform_.api().event_destroy({event, static_cast<std::int32_t>(device), false}).ok();
  }
}

}  // namespace tensormem::gpu

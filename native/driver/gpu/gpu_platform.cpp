#include "driver/gpu/gpu_platform.hpp"

#include <pthread.h>

#include "driver/gpu/gpu_driver.hpp"

namespace tensormem {

namespace {

// Raised by every fork; a platform that was opened in an earlier process is the parent's.
std::atomic<int> g_process{1};
thread_local int t_host_functions = 0;

void count_process() { g_process.fetch_add(1); }

int this_process() {
  static const int registered = pthread_atfork(nullptr, nullptr, count_process);
  return registered == 0 ? g_process.load() : 0;
}

}  // namespace

GpuPlatform::GpuPlatform(std::unique_ptr<gpu::GpuApi> api) : api_(std::move(api)), process_(this_process()) {
  grains.resize(static_cast<std::size_t>(api_->device_count()));
  for (std::int32_t device = 0; device < api_->device_count(); ++device)
    drivers_.push_back(std::make_unique<GpuDriver>(*this, device));
}

GpuDriver* GpuPlatform::driver(std::int32_t device) noexcept {
  const bool known = device >= 0 && device < device_count();
  return known ? drivers_[static_cast<std::size_t>(device)].get() : nullptr;
}

bool GpuPlatform::is_forked() const noexcept { return g_process.load(std::memory_order_relaxed) != process_; }

void GpuPlatform::close() noexcept {
  if (is_lost() || is_in_host_function()) return;
  relays.forget_all();
  destroy_left();
  watch.end();
  closed_ = true;
  api_->close();
}

GpuHeld GpuPlatform::held() {
  const std::lock_guard lock(mutex);
  return {streams.count(),           events.count(),   pools.count(),
          books.reservation_count(), physicals.size(), externals.size()};
}

Status GpuPlatform::check_usable() const noexcept {
  if (is_forked())
    return Status::fail(Code::not_supported,
                        "a GPU driver that was opened before a fork does not work in the child; start it with spawn");
  if (closed_.load(std::memory_order_relaxed))
    return Status::fail(Code::not_supported, "this GPU driver was closed (its simulated GPU is switched off)");
  if (is_in_host_function())
    return Status::fail(Code::stream_misuse, "a host function on a GPU's stream must not call the GPU's driver", 0);
  return {};
}

void GpuPlatform::enter_host_function() noexcept { ++t_host_functions; }
void GpuPlatform::leave_host_function() noexcept { --t_host_functions; }
bool GpuPlatform::is_in_host_function() noexcept { return t_host_functions != 0; }

void GpuPlatform::leave_for_later(gpu::EventRef event) {
  const std::lock_guard lock(left_mutex_);
  left_events_.push_back(event);
}

void GpuPlatform::leave_for_later(gpu::StreamRef stream) {
  const std::lock_guard lock(left_mutex_);
  left_streams_.push_back(stream);
}

void GpuPlatform::release_external(gpu::ExternalRef external) {
  const bool allowed = !is_in_host_function();
  if (allowed && external.address != 0 && api_->external_unmap(external).ok()) external.address = 0;
  if (allowed && external.address == 0 && api_->external_destroy(external).ok()) return;
  if (allowed && watch.is_reset(external.device)) return;
  const std::lock_guard lock(left_mutex_);
  left_externals_.push_back(external);
}

void GpuPlatform::destroy_left() noexcept {
  std::vector<gpu::EventRef> events_left;
  std::vector<gpu::StreamRef> streams_left;
  std::vector<gpu::ExternalRef> externals_left;
  {
    const std::lock_guard lock(left_mutex_);
    events_left.swap(left_events_);
    streams_left.swap(left_streams_);
    externals_left.swap(left_externals_);
  }
  for (const gpu::EventRef& event : events_left) {
    if (!api_->event_destroy(event).ok() && !watch.is_reset(event.device)) leave_for_later(event);
  }
  for (const gpu::StreamRef& stream : streams_left) {
    if (!api_->stream_destroy(stream).ok() && !watch.is_reset(stream.device)) leave_for_later(stream);
  }
  for (const gpu::ExternalRef& external : externals_left) release_external(external);
}

}  // namespace tensormem

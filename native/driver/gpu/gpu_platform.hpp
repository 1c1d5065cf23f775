// Owns: one vendor's driver, opened once, and what all of its devices share: the numbers of streams and events, the
// books of virtual memory, and the drivers of the single devices. Never destroyed: its streams and events may be held
// by anybody; `close` makes everything refuse.
// Must not know: which vendor it is.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "driver/gpu/address_books.hpp"
#include "driver/gpu/context_watch.hpp"
#include "driver/gpu/gpu_api.hpp"
#include "driver/gpu/handle_table.hpp"
#include "driver/gpu/peer_grants.hpp"
#include "driver/gpu/relays.hpp"

namespace tensormem {

class GpuDriver;

// What was made through the platform and is not destroyed yet.
struct GpuHeld {
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t pools = 0;
  std::uint64_t reservations = 0;
  std::uint64_t physicals = 0;
  std::uint64_t externals = 0;
};

class GpuPlatform {
  const std::unique_ptr<gpu::GpuApi> api_;
  const int process_;

 public:
  struct StreamItem {
    gpu::StreamRef ref;
    bool imported = false;
    std::uint64_t serial = 0;  // of an imported one, where the driver gives any
  };
  struct Physical {
    gpu::NativePhysical handle = 0;
    PhysicalInfo info;
    std::int32_t fd = -1;  // what imported memory came by: ours as long as the memory, since some releases still use it
    std::uint32_t users = 0;  // threads whose driver call needs the handle at this moment
  };

  explicit GpuPlatform(std::unique_ptr<gpu::GpuApi> api);
  GpuPlatform(const GpuPlatform&) = delete;
  GpuPlatform& operator=(const GpuPlatform&) = delete;

  gpu::GpuApi& api() noexcept { return *api_; }
  std::int32_t device_count() const noexcept { return api_->device_count(); }
  // Null when there is no such device.
  GpuDriver* driver(std::int32_t device) noexcept;
  // From now on every call is refused, and the devices' contexts are let go.
  void close() noexcept;

  GpuHeld held();

  // Whether calls may be made at all: not closed, not the child of a fork, not inside a host function of a stream.
  Status check_usable() const noexcept;
  bool is_lost() const noexcept { return closed_.load(std::memory_order_relaxed) || is_forked(); }

  // What could not be destroyed: because the driver would not, or because a host function is running, where no call
  // into the driver is allowed. It is tried again with the next creation, and at the end.
  void leave_for_later(gpu::EventRef event);
  void leave_for_later(gpu::StreamRef stream);
  void destroy_left() noexcept;
  // Unmaps memory of others and destroys the vendor's object for it; what is refused is tried again later.
  void release_external(gpu::ExternalRef external);
  static void enter_host_function() noexcept;
  static void leave_host_function() noexcept;
  static bool is_in_host_function() noexcept;

  gpu::HandleTable<StreamItem> streams;
  gpu::HandleTable<gpu::EventRef> events;
  gpu::HandleTable<gpu::PoolRef> pools;
  gpu::ContextWatch watch{*this};
  gpu::PeerGrants grants{*this};
  gpu::Relays relays{*this};

  Mutex mutex;  // guards everything below; never held over a driver call
  ForkGuard fork_guard{mutex};
  std::vector<Granularity> grains;  // by device; minimum 0: not asked yet
  gpu::AddressBooks books;
  // By handle; the handles that name a stream of the thread are each device's own.
  std::unordered_map<std::uint64_t, StreamId> stream_numbers;
  std::map<PhysicalHandle, Physical> physicals;
  PhysicalHandle next_physical = 1;
  std::map<std::uint64_t, gpu::ExternalRef> externals;     // by address
  std::unordered_map<std::uint64_t, std::uint64_t> bases;  // of allocations whose address was raised to an alignment

 private:
  bool is_forked() const noexcept;

  std::vector<std::unique_ptr<GpuDriver>> drivers_;
  std::atomic<bool> closed_{false};
  Mutex left_mutex_;
  ForkGuard left_guard_{left_mutex_};
  std::vector<gpu::EventRef> left_events_;
  std::vector<gpu::StreamRef> left_streams_;
  std::vector<gpu::ExternalRef> left_externals_;
};

}  // namespace tensormem

// Owns: the books of virtual memory that is not there: reserved addresses, physical memory up to a capacity, and what
// is mapped where. A request is refused where the host driver would refuse it, and counted where it would be counted;
// there is no byte behind any of it. The addresses are ones that no process can have, so that touching them faults.
//
// Fork: nothing is shared, so the child goes on with books of its own.
// Must not know: streams, or who asks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/fork_guard.hpp"
#include "base/status.hpp"
#include "driver/host/reservation.hpp"
#include "driver/types.hpp"

namespace tensormem::abstract {

class PageBooks {
 public:
  static constexpr std::uint64_t kGranularity = 2ULL << 20;  // that of GPUs

  explicit PageBooks(std::uint64_t capacity) : capacity_(capacity) {}

  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) noexcept;
  Status release(std::uint64_t address, std::uint64_t size) noexcept;
  // `out_of_physical_memory` beyond the capacity. Memory that was destroyed counts until its last mapping is gone.
  Status create(std::uint64_t size, PhysicalHandle* handle) noexcept;
  Status destroy(PhysicalHandle handle) noexcept;
  Status info(PhysicalHandle handle, PhysicalInfo* info) noexcept;
  // The pieces one behind the other: all of them or none.
  Status map(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, AccessFlags access) noexcept;
  Status unmap(std::uint64_t address, std::uint64_t size) noexcept;
  Status set_access(std::uint64_t address, std::uint64_t size, AccessFlags access) noexcept;

  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t used_bytes() const noexcept;
  // Nothing is reserved, made or mapped.
  bool is_empty() const noexcept;
  bool is_valid() const noexcept;

 private:
  // With the lock.
  Status find(std::uint64_t address, std::uint64_t size, host::Reservation** reservation) noexcept;
  Status find(PhysicalHandle handle, host::Physical** physical) noexcept;
  // The range, all of which must be mapped, with pieces that end where it does.
  Status cut_out(std::uint64_t address, std::uint64_t size, host::Reservation** reservation);
  bool find_room(std::uint64_t size, std::uint64_t alignment, std::uint64_t* start) const noexcept;
  void let_go(host::Physical* physical) noexcept;

  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::map<std::uint64_t, host::Reservation> reservations_;
  std::unordered_map<PhysicalHandle, host::Physical> physicals_;  // also those destroyed but still mapped
  PhysicalHandle next_handle_ = 1;
  std::uint64_t used_ = 0;
};

}  // namespace tensormem::abstract

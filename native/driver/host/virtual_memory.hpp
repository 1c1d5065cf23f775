// Owns: the reserved addresses of this process and what is mapped in them, and the system calls that make it so. One
// lock guards the books; pages are made and given back outside it.
//
// Fork: the mappings are shared memory, so an innocent child would write into the parent's pool. Instead the child
// finds all reserved ranges untouchable (a touch faults at once) and its books intact enough to unmap and release them.
// It can reserve, create and map afresh. Memory meant to be shared is exported by descriptor, never by forking. Must
// not know: how physical memory is made.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "driver/host/physical_memory.hpp"
#include "driver/host/reservation.hpp"
#include "driver/host/vma_budget.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

class VirtualMemory {
 public:
  explicit VirtualMemory(PhysicalMemory& physicals) noexcept : physicals_(physicals) {}

  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) noexcept;
  Status release(std::uint64_t address, std::uint64_t size) noexcept;
  // The pieces one behind the other. Those that are neighbours in their file as well are mapped by one call, which
  // gives the access too.
  Status map(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, AccessFlags access) noexcept;
  Status unmap(std::uint64_t address, std::uint64_t size) noexcept;
  Status set_access(std::uint64_t address, std::uint64_t size, AccessFlags access) noexcept;

  std::uint64_t reservation_count() const noexcept;
  std::uint64_t mapping_count() const noexcept;
  std::uint64_t area_count() noexcept;
  std::uint64_t area_limit() noexcept;
  bool is_valid() const noexcept;

  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  void after_fork_in_child() noexcept;

 private:
  Status find(std::uint64_t address, std::uint64_t size, Reservation** reservation) noexcept;
  Status refused(int error, const char* call) noexcept;
  Status acquire(const MapPiece* asked, std::uint64_t count, AccessFlags access, std::vector<Piece>* pieces);
  Status add_pieces(Reservation& reservation, std::uint64_t address, std::uint64_t size,
                    const std::vector<Piece>& pieces) noexcept;
  static int map_neighbours(std::uint64_t address, const std::vector<Piece>& pieces) noexcept;
  Status change_access(Reservation& reservation, std::uint64_t address, std::uint64_t size,
                       AccessFlags access) noexcept;
  int close_off(std::uint64_t address, std::uint64_t size) noexcept;
  Status take_out(Reservation& reservation, std::uint64_t address, std::uint64_t size,
                  Reservation::Pieces* removed) noexcept;

  PhysicalMemory& physicals_;
  mutable std::mutex mutex_;
  VmaBudget budget_;
  std::map<std::uint64_t, Reservation> reservations_;
};

}  // namespace tensormem::host

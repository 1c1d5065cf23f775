// Owns: the books of a GPU's virtual memory: which addresses are reserved and what is mapped where, so that a wrong
// request is refused with the facts before the vendor's driver, which only says "invalid value", is asked.
// A handle is an atom there: mapped whole and from its start, and unmapped whole. The driver is called without the
// lock: what is about to be mapped, unmapped or released is noted first, and nobody else may touch it until the driver
// has answered. Must not know: the vendor.
#pragma once

#include <cstdint>
#include <map>

#include "base/status.hpp"

namespace tensormem::gpu {

class AddressBooks {
 public:
  void add_reservation(std::uint64_t address, std::uint64_t size) { reservations_[address].size = size; }
  // The reservation is nobody's from here on; the driver's answer decides.
  Status begin_release(std::uint64_t address, std::uint64_t size);
  void cancel_release(std::uint64_t address);
  void end_release(std::uint64_t address) { reservations_.erase(address); }

  // The range is noted as a mapping that is not there yet.
  Status begin_map(std::uint64_t address, std::uint64_t size);
  // The range is filled by whole mappings, and nobody is changing them.
  Status check_mapped(std::uint64_t address, std::uint64_t size) const;
  Status begin_unmap(std::uint64_t address, std::uint64_t size);
  // What was begun: the mappings are there, or are not there.
  void end_change(std::uint64_t address, std::uint64_t size, bool mapped);

  // The whole mappings that a part of them lies in, if a device's access to any of them was never set; it counts as set
  // from here on.
  bool begin_grant(std::uint64_t address, std::uint64_t size, std::int32_t device, std::uint64_t* start,
                   std::uint64_t* span);
  // The access of a device to whole mappings is as it was told.
  void note_access(std::uint64_t address, std::uint64_t size, std::int32_t device);

  std::uint64_t reservation_count() const { return reservations_.size(); }

 private:
  struct Mapping {
    std::uint64_t size = 0;
    bool changing = false;   // the driver is being asked
    std::uint64_t told = 0;  // devices whose access was set, one bit each
  };
  struct Reservation {
    std::uint64_t size = 0;
    bool leaving = false;
    std::map<std::uint64_t, Mapping> mappings;  // by address
  };
  using Reservations = std::map<std::uint64_t, Reservation>;

  Status find(std::uint64_t address, std::uint64_t size, Reservations::const_iterator* found) const;

  Reservations reservations_;
};

}  // namespace tensormem::gpu

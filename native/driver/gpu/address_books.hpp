// Owns: the books of a GPU's virtual memory: which addresses are reserved and what is mapped where, so that a wrong
// request is refused with the facts before the vendor's driver, which only says "invalid value", is asked.
// A handle is an atom there: mapped whole and from its start, and unmapped whole. Must not know: the vendor.
#pragma once

#include <cstdint>
#include <map>

#include "base/status.hpp"

namespace tensormem::gpu {

class AddressBooks {
 public:
  void add_reservation(std::uint64_t address, std::uint64_t size) { reservations_[address].size = size; }
  Status check_release(std::uint64_t address, std::uint64_t size) const;
  void remove_reservation(std::uint64_t address) { reservations_.erase(address); }

  Status check_map(std::uint64_t address, std::uint64_t size) const;
  void add_mapping(std::uint64_t address, std::uint64_t size);
  // The range is filled by whole mappings.
  Status check_mapped(std::uint64_t address, std::uint64_t size) const;
  void remove_mappings(std::uint64_t address, std::uint64_t size);

  std::uint64_t reservation_count() const { return reservations_.size(); }

 private:
  struct Reservation {
    std::uint64_t size = 0;
    std::map<std::uint64_t, std::uint64_t> mappings;  // address to size
  };
  using Reservations = std::map<std::uint64_t, Reservation>;

  Status find(std::uint64_t address, std::uint64_t size, Reservations::const_iterator* found) const;

  Reservations reservations_;
};

}  // namespace tensormem::gpu

// Owns: one reserved range of addresses and everything mapped in it. Every change is a transaction: it happens as a
// whole, or the first failure is returned and the range is as it was. Dropping a range unmaps everything, lets go of
// the physical memory, and releases the addresses, in this order.
// Must not know: how memory is shared, or who uses the addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "driver/driver.hpp"
#include "vmm/mapping_table.hpp"
#include "vmm/vmm_counters.hpp"

namespace tensormem {

// What the driver asks of ranges and mappings in them.
struct MappingRules {
  std::uint64_t granularity = 0;
  bool whole_handles = false;  // physical memory is mapped whole, and unmapped whole
};

struct MapRequest {
  PhysicalPtr physical;
  std::uint64_t offset = 0;
  std::uint64_t physical_offset = 0;
  std::uint64_t size = 0;
};

class AddressRange {
 public:
  AddressRange(Driver& driver, std::uint64_t base, std::uint64_t size, std::uint64_t alignment,
               const MappingRules& rules, std::shared_ptr<VmmCounters> counters);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::uint64_t base() const noexcept { return base_; }
  // Its number in traces.
  std::uint32_t id() const noexcept { return id_; }
  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t alignment() const noexcept { return alignment_; }
  bool is_released() const noexcept;

  // All of them or none; with `access` for `device` at once if it is not `none`. They share one serial number.
  Status map(const std::vector<MapRequest>& requests, std::int32_t device, AccessFlags access,
             std::uint64_t* serial) noexcept;
  Status unmap(std::uint64_t offset, std::uint64_t size) noexcept;
  // As `unmap`, if the range is still what the call of that serial number mapped.
  Status unmap_serial(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) noexcept;
  // Unmaps what is left there of what that call mapped; nothing left is no failure.
  Status unmap_rest(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) noexcept;
  Status set_access(std::uint64_t offset, std::uint64_t size, std::int32_t device, AccessFlags access) noexcept;
  // What the device may do everywhere in the range.
  Status get_access(std::uint64_t offset, std::uint64_t size, std::int32_t device, AccessFlags* access) const noexcept;
  // The same pages with the same access at another offset of `target`, which may be this range. No byte is copied.
  Status move(std::uint64_t offset, std::uint64_t size, std::uint64_t serial, AddressRange& target,
              std::uint64_t new_offset, std::uint64_t* new_serial) noexcept;
  // `still_mapped` while anything is.
  Status release() noexcept;
  // Unmaps whatever is mapped, and then, unless that fails, releases. Once or many times.
  Status close() noexcept;
  Status unmap_all() noexcept;

  bool is_mapped(std::uint64_t offset, std::uint64_t size) const noexcept;
  Status is_current(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) const noexcept;
  MappingTable::Mappings mappings() const;
  bool is_valid() const noexcept;

 private:
  Status check_open() const noexcept;
  Status check_range(std::uint64_t offset, std::uint64_t size) const noexcept;
  Status check_request(const MapRequest& request) const noexcept;
  Status check_whole(std::uint64_t offset, std::uint64_t size) const noexcept;
  static std::uint64_t take_serial() noexcept;
  Status note(const MapRequest& request, std::uint64_t serial, const AccessSet& access) noexcept;
  void forget(std::uint64_t offset, std::uint64_t size) noexcept;
  Status map_noted(std::uint64_t offset, const Mapping& mapping) noexcept;
  void undo_map(const std::vector<MapRequest>& requests, std::size_t noted, std::size_t mapped) noexcept;
  Status split(std::uint64_t offset, std::uint64_t size) noexcept;
  void rejoin(std::uint64_t offset, std::uint64_t size) noexcept;
  Status map_all(const std::vector<MapRequest>& requests, std::int32_t device, AccessFlags access,
                 std::size_t* done) noexcept;
  Status unmap_locked(std::uint64_t offset, std::uint64_t size) noexcept;
  Status unmap_pieces(std::uint64_t offset, std::uint64_t size) noexcept;
  void put_back(std::uint64_t offset, std::uint64_t end) noexcept;
  Status unmap_all_locked() noexcept;
  Status release_locked() noexcept;
  Status receive(AddressRange& source, std::uint64_t from, std::uint64_t size, std::uint64_t to,
                 std::uint64_t serial) noexcept;
  Status receive_one(const Mapping& moving, std::uint64_t offset, std::uint64_t serial) noexcept;
  void send_back(std::uint64_t offset, std::uint64_t size) noexcept;
  Status restore_access(std::uint64_t offset, const Mapping& mapping) noexcept;

  Driver& driver_;
  const std::uint32_t id_;
  const std::uint64_t base_;
  const std::uint64_t size_;
  const std::uint64_t alignment_;
  const MappingRules rules_;
  const std::shared_ptr<VmmCounters> counters_;
  mutable Mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  MappingTable table_;
  bool released_ = false;
};

using AddressRangePtr = std::shared_ptr<AddressRange>;

}  // namespace tensormem

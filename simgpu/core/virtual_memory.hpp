// Owns: addresses reserved, physical memory created, and the mappings between them, by the driver's strict rules: a
// handle is mapped whole and from its start, whole mappings are unmapped, addresses are freed when nothing is mapped.
// Must not know: streams. Guarded by the machine's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "core/memory_map.hpp"
#include "core/results.hpp"

namespace simgpu {

class Machine;

struct Physical {
  std::uint64_t handle = 0;
  Device* device = nullptr;
  std::uint64_t size = 0;
  int handle_types = 0;
  int fd = -1;
  bool imported = false;
  std::uint64_t references = 0;  // handles given out
  std::uint64_t mappings = 0;
};

class VirtualMemory {
 public:
  explicit VirtualMemory(Machine& machine) : machine_(machine) {}
  ~VirtualMemory();

  Result reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address);
  Result release(std::uint64_t address, std::uint64_t size);
  Result create(Device& device, std::uint64_t size, int handle_types, std::uint64_t* handle);
  Result destroy(std::uint64_t handle);
  Result find(std::uint64_t handle, Physical** physical);
  Result map(std::uint64_t address, std::uint64_t size, std::uint64_t offset, std::uint64_t handle);
  Result unmap(std::uint64_t address, std::uint64_t size);
  Result set_access(std::uint64_t address, std::uint64_t size, int device, int flags);
  Result get_access(std::uint64_t address, int device, int* flags);
  // One more handle of what is mapped there.
  Result retain(std::uint64_t address, std::uint64_t* handle);
  Result export_fd(std::uint64_t handle, int* fd);
  Result import_fd(Device& device, int fd, std::uint64_t* handle);

  std::uint64_t reservation_count() const { return reservations_.size(); }
  std::uint64_t mapping_count() const;
  std::uint64_t physical_count() const { return physicals_.size(); }

 private:
  bool is_whole(std::uint64_t value) const;
  Window* find_reservation(std::uint64_t address, std::uint64_t size);
  // True when whole mappings, side by side, fill the range exactly.
  bool is_filled(std::uint64_t address, std::uint64_t size);
  void forget_if_unused(Physical& physical);

  Machine& machine_;
  std::map<std::uint64_t, std::unique_ptr<Window>> reservations_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Physical>> physicals_;
  std::uint64_t next_handle_ = 0x51ULL << 32;
};

}  // namespace simgpu

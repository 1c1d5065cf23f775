// Owns: memory of others: what was imported by descriptor, and where it is mapped. The simulated driver keeps the
// descriptor it is given, as the real ones do, and closes it when the import is destroyed.
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

struct External {
  Device* device = nullptr;
  std::uint64_t size = 0;
  int fd = -1;
};

class Externals {
 public:
  explicit Externals(Machine& machine) : machine_(machine) {}
  ~Externals();

  // Owns `fd` when it went well, and only then. A file stands for a DMA-BUF here: any that can be mapped and has a
  // size.
  Result import(Device& device, int fd, std::uint64_t size, void** handle);
  Result map(void* handle, std::uint64_t offset, std::uint64_t size, std::uint64_t* address);
  // Buffers that are mapped stay until they are freed.
  Result destroy(void* handle);
  void unmap(std::uint64_t address);

  std::uint64_t count() const { return externals_.size(); }

 private:
  Machine& machine_;
  std::unordered_map<void*, std::unique_ptr<External>> externals_;
  std::map<std::uint64_t, std::unique_ptr<Window>> windows_;  // by the address of the buffer
};

}  // namespace simgpu

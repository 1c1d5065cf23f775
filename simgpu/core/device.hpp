// Owns: one simulated device: how much memory it has and has given out, and the error that broke it, if one did.
// Must not know: who asks. Guarded by the machine's lock.
#pragma once

#include <cstdint>
#include <list>

#include "core/heap.hpp"
#include "core/results.hpp"
#include "core/window.hpp"

namespace simgpu {

struct Pool;

struct Device;

// A context beside the primary one, that an application made for itself.
struct OwnContext {
  Device* device = nullptr;
};

struct Device {
  int ordinal = 0;
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  Window window;
  Heap heap;
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;  // null: the default one
  std::uint64_t retained = 0;    // of the primary context
  unsigned context_flags = 0;
  std::list<OwnContext> own_contexts;  // a handle is the address of one
  std::uint32_t peers = 0;             // devices whose memory this context may touch
  Result broken = kSuccess;  // a sticky error: every call of the context answers it until the context is reset

  Result take(std::uint64_t size, std::uint64_t* address) {
    if (size > total - used) return kOutOfMemory;
    const std::uint64_t found = heap.take(size);
    if (found == 0) return kOutOfMemory;
    used += size;
    *address = found;
    return kSuccess;
  }
  void give_back(std::uint64_t address, std::uint64_t size) {
    window.discard(address, size);
    heap.give_back(address, size);
    used -= size;
  }
};

}  // namespace simgpu

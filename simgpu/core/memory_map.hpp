// Owns: every range of memory the simulated driver knows, by its public address: what it is, whose, and where the
// simulator reaches its bytes. Answers whether a device may touch a span, which is what makes a wrong pointer an error.
// Must not know: streams, or how memory is taken. Guarded by the machine's lock.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/clock.hpp"
#include "core/results.hpp"
#include "core/window.hpp"

namespace simgpu {

struct Device;
struct Graph;
struct Pool;
struct Physical;

enum class Kind : std::uint8_t { device, pooled, host, registered, managed, mapped, external };

// What a driver was told about managed memory.
struct AdviceNote {
  bool read_mostly = false;
  int preferred = kNowhere;       // a device, or -1: the host
  std::uint32_t accessed_by = 0;  // devices, one bit each
  bool accessed_by_host = false;
  int prefetched = kNowhere;
  static constexpr int kNowhere = -2;
};

struct Range {
  std::uint64_t start = 0;
  std::uint64_t size = 0;
  std::uint64_t id = 0;
  Kind kind = Kind::device;
  Device* device = nullptr;
  const Window* window = nullptr;  // null: the host reaches it at its own address
  Pool* pool = nullptr;
  Physical* physical = nullptr;
  const Graph* graph = nullptr;  // of the capture that allocated it
  bool freed_by_graph = false;
  std::uint64_t imports = 0;    // how often it came from another process, and is to be freed
  std::uint32_t readers = ~0U;  // devices, one bit each
  std::uint32_t writers = ~0U;
  AdviceNote advice;
  Point ready;                                  // pooled memory exists from here on
  std::map<std::uint64_t, std::uint64_t> uses;  // the latest work of each stream that touches it

  std::uint64_t alias(std::uint64_t address) const { return window == nullptr ? address : window->alias(address); }
  bool contains(std::uint64_t address) const { return address - start < size; }
  bool is_host() const;
  bool is_managed() const;
  // Whether work of the device may touch it.
  bool is_open_to(const Device& worker, bool write) const;
};

// Whose rights count: those of the device that does the work, or those of the memory's own device as well.
enum class By : std::uint8_t { worker, owner };

struct Access {
  const Device& device;
  bool write = false;
  By who = By::worker;
};

// Where a span lies, and what it touches.
struct Span {
  std::uint64_t alias = 0;
  bool pageable = false;
  std::vector<Range*> ranges;
};

class MemoryMap {
 public:
  Range& add(const Range& range);
  void remove(std::uint64_t start) { ranges_.erase(start); }
  Range* find(std::uint64_t address);
  Range* find_start(std::uint64_t start);
  bool overlaps(std::uint64_t start, std::uint64_t size) const;
  template <typename Visit>
  void for_each(Visit visit) {
    for (auto& [start, range] : ranges_) visit(range);
  }

  void add_window(const Window& window) { windows_.emplace(window.start(), &window); }
  void remove_window(const Window& window) { windows_.erase(window.start()); }
  bool is_device_address(std::uint64_t address) const { return find_window(address) != nullptr; }

  // Addresses outside every window are the host's own, and taken as they are.
  // kPeerAccessNotEnabled when the memory is there and its own device may touch it, but the worker may not.
  Result resolve(std::uint64_t address, std::uint64_t size, const Access& access, Span* span);

 private:
  const Window* find_window(std::uint64_t address) const;

  std::map<std::uint64_t, Range> ranges_;
  std::map<std::uint64_t, const Window*> windows_;
  std::uint64_t next_id_ = 1;
};

}  // namespace simgpu

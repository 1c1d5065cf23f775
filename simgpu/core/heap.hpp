// Owns: which addresses of a device's window are taken. First fit, neighbours joined; simple on purpose.
// Must not know: how much memory the device has; the device counts that.
#pragma once

#include <cstdint>
#include <map>

namespace simgpu {

class Heap {
 public:
  static constexpr std::uint64_t kGrain = 512;

  void open(std::uint64_t start, std::uint64_t size) { free_ = {{start, size}}; }
  // 0 when no hole is large enough.
  std::uint64_t take(std::uint64_t size) {
    for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
      if (hole->second < size) continue;
      const std::uint64_t address = hole->first;
      const std::uint64_t rest = hole->second - size;
      free_.erase(hole);
      if (rest != 0) free_.emplace(address + size, rest);
      return address;
    }
    return 0;
  }
  void give_back(std::uint64_t address, std::uint64_t size) {
    auto next = free_.lower_bound(address);
    if (next != free_.end() && address + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == address) {
        before->second += size;
        return;
      }
    }
    free_.emplace(address, size);
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;
};

}  // namespace simgpu

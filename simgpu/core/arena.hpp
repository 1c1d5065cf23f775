// Owns: memory behind a file, for pools whose memory goes to other processes or is the host's: its addresses, which of
// them are taken, and the file. Addresses of a device's memory fault when the host touches them; those of the host do
// not. Must not know: pools, or how much memory a device has.
#pragma once

#include <cstdint>

#include "core/heap.hpp"
#include "core/window.hpp"

namespace simgpu {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Over a file of its own, or over one that came from another process (and is owned from now on when it went well).
  bool open(std::uint64_t size, bool for_host);
  bool open_file(int file, std::uint64_t size, bool for_host);

  // 0 when there is no room.
  std::uint64_t take(std::uint64_t size) { return heap_.take(size); }
  // The bytes read as zero again.
  void give_back(std::uint64_t address, std::uint64_t size);

  int file() const { return file_; }
  std::uint64_t start() const { return start_; }
  std::uint64_t size() const { return size_; }
  // Null when the host reaches the memory at its own addresses.
  const Window* window() const { return for_host_ ? nullptr : &window_; }

 private:
  int file_ = -1;
  bool for_host_ = false;
  std::uint64_t start_ = 0;
  std::uint64_t size_ = 0;
  Window window_;
  Heap heap_;
};

}  // namespace simgpu

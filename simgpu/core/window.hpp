// Owns: addresses that mean device memory. Each window is there twice: at the public addresses, where host code that
// touches them faults as it would on a real GPU, and at an alias that only the simulator knows.
// Must not know: allocations.
#pragma once

#include <cstdint>

namespace simgpu {

class Window {
 public:
  Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() { close(); }

  // With memory behind the alias from the start (zero, taken when touched), or with addresses alone. An errno or 0.
  int open(std::uint64_t size, std::uint64_t alignment, bool with_memory);
  void close();

  // Give the pages of a range back; it reads as zero again.
  void discard(std::uint64_t address, std::uint64_t size) const;
  // Put a file's bytes behind a range of addresses, and take them away again.
  int map_file(std::uint64_t address, std::uint64_t size, int fd, std::uint64_t offset) const;
  int unmap_file(std::uint64_t address, std::uint64_t size) const;

  // The file behind the memory that it was opened with; -1 when it was opened with addresses alone.
  int file() const { return file_; }
  std::uint64_t start() const { return start_; }
  std::uint64_t size() const { return size_; }
  bool contains(std::uint64_t address) const { return address - start_ < size_; }
  std::uint64_t alias(std::uint64_t address) const { return address - start_ + alias_; }

 private:
  std::uint64_t start_ = 0;
  std::uint64_t alias_ = 0;
  std::uint64_t size_ = 0;
  int file_ = -1;
};

}  // namespace simgpu

// Owns: the descriptors by which memory goes to other processes. A descriptor of a real driver is a device of its own
// kind: it has no size that fstat could tell, and nobody but the driver gets anything out of it. Here such a descriptor
// is a socket with one letter in it, which holds the file and is read without being taken out.
// Must not know: what the memory is.
#pragma once

#include <cstdint>

#include "core/results.hpp"

namespace simgpu {

struct Letter {
  std::uint64_t mark = kMark;
  std::uint64_t size = 0;
  std::uint64_t note = 0;  // whatever the exporter wants to tell the importer
  static constexpr std::uint64_t kMark = 0x7573676d6973746dULL;
};

// A new descriptor for the file behind `file`, of `size` bytes. The caller owns it.
Result seal(int file, std::uint64_t size, std::uint64_t note, int* fd);
// The file in a descriptor, as a new one of the caller's, with its letter. A plain file is taken as it is.
Result unseal(int fd, int* file, Letter* letter);

}  // namespace simgpu

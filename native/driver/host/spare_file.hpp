// Owns: the file of shared memory that was given up last and that nobody but this process ever saw: emptied, so that it
// holds no memory, and still mapped, for the next of its size. Making a file, mapping it and taking both away again is
// most of what shared memory costs. Must not know: what is in it, and who asks.
#pragma once

#include <cstdint>

namespace tensormem::host {

struct SpareFile {
  int fd = -1;
  std::uint64_t address = 0;
  std::uint64_t mapped_bytes = 0;
  std::uint64_t forks = 0;  // `fork_count()` before it was made: since then no other process can have come to hold it
};

// The spare of that size, if there is one: empty, mapped to be read and written, and the caller's from now on.
bool take_spare_file(std::uint64_t mapped_bytes, SpareFile* spare) noexcept;
// Empties a file and keeps it, in the place of the one before. False, and nothing was done, when a process may hold it
// that came by a fork, when it cannot be emptied, or when another thread is here.
bool keep_spare_file(const SpareFile& spare) noexcept;
// Lets go of the one that is kept.
void drop_spare_file() noexcept;

}  // namespace tensormem::host

// Owns: the files of shared memory that were given up last and that nobody but this process ever saw: emptied, so that
// they hold no memory, and still mapped, for the next of their size. Making a file, mapping it and taking both away
// again is most of what shared memory costs. At most `kMaxSpareFiles` are kept, the last ones. Must not know: what is
// in them, and who asks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensormem::host {

// Each has a descriptor and a mapping, of which a process may have about a thousand and 65,530.
inline constexpr std::size_t kMaxSpareFiles = 16;

struct SpareFile {
  int fd = -1;
  std::uint64_t address = 0;
  std::uint64_t mapped_bytes = 0;
  std::uint64_t forks = 0;  // `fork_count()` before it was made: since then no other process can have come to hold it
};

// The spare of that size that was kept last, if there is one: empty, mapped to be read and written, and the caller's
// from now on.
bool take_spare_file(std::uint64_t mapped_bytes, SpareFile* spare) noexcept;
// Empties a file and keeps it; where all places are taken, instead of the oldest. False, and nothing was done, when a
// process may hold it that came by a fork, when it cannot be emptied, or when another thread is here.
bool keep_spare_file(const SpareFile& spare) noexcept;
// Lets go of all that are kept.
void drop_spare_files() noexcept;

}  // namespace tensormem::host

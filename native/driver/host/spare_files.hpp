// Owns: the shared memory that was freed last and that nobody but this process ever saw: its files, still mapped and,
// up to a share of the machine's memory, with their pages, for the next of their size. Making a file, its pages and its
// mapping and taking them away again is most of what shared memory costs. At most `kMaxSpareFiles` are kept, the last
// ones. Whoever takes one gets zeros. Must not know: what is in them, and who asks.
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
  std::uint64_t file_bytes = 0;       // how large the file is; 0 once it was emptied
  std::uint64_t committed_bytes = 0;  // of its pages
  std::uint64_t name_hash = 0;        // a file keeps the name it was made with
  std::uint64_t forks = 0;  // `fork_count()` before it was made: since then no other process can have come to hold it
};

// The spare of that size and name that was kept last, if there is one: zeroed, mapped to be read and written, and the
// caller's from now on.
bool take_spare_file(std::uint64_t mapped_bytes, std::uint64_t name_hash, SpareFile* spare) noexcept;
// Keeps a file, emptied if its pages are too many; where there is no room, instead of the oldest. False, and nothing
// was done, when a process may hold it that came by a fork, when it cannot be emptied, or when another thread is here.
bool keep_spare_file(SpareFile spare) noexcept;
// Lets go of all that are kept; gives how many bytes of memory that returns.
std::uint64_t drop_spare_files() noexcept;
// The same where memory or descriptors are short; whether anything was let go of, so that trying again makes sense.
bool yield_spare_files() noexcept;
// The memory that is kept.
std::uint64_t spare_file_bytes() noexcept;

}  // namespace tensormem::host

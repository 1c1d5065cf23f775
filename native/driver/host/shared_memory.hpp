// Owns: one piece of memory that other processes can hold: a nameless file, its descriptor, and its mappings here. It
// is sealed against shrinking before anybody else gets it, so that nobody can pull pages from under a reader. Nothing
// of it outlives the last process that holds it, however that ends. Must not know: how a descriptor travels, and what
// the bytes are.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.hpp"

namespace tensormem {

struct SharedMemoryOptions {
  const char* name = "tensormem";  // what /proc/PID/maps calls it
  bool huge_pages = false;         // 2 MiB pages or a refusal; the size is rounded up to them
  bool readers_only = false;       // nobody but this object's own mapping ever writes; the kernel sees to it
  bool fresh = false;              // a new file, never one that was kept
};

// What may be attached, and how.
struct AttachOptions {
  std::uint64_t nbytes = 0;  // at least so many; 0 takes all there are
  bool readonly = false;
  bool trusted = false;  // also what cannot be sealed against shrinking
};

class SharedMemory {
 public:
  SharedMemory() noexcept = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { release(); }

  // Both fill an empty object or leave it empty. `attach` keeps a descriptor of its own.
  Status create(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept;
  Status attach(int fd, const AttachOptions& options) noexcept;
  // Takes everything away; more than once is once.
  void release() noexcept;

  // Where the bytes are: writable where this object may write.
  std::uint64_t address() const noexcept { return address_; }
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  bool readonly() const noexcept { return readonly_; }
  bool readers_only() const noexcept { return readers_only_; }
  bool sealed() const noexcept { return sealed_; }
  bool huge() const noexcept { return huge_; }
  int fd() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }

  // The address of a mapping that cannot write; made at the first call and kept.
  Status reading_address(std::uint64_t* address) noexcept;
  // A new descriptor of the file, which can only read if `readonly`. The first one fixes mode and seals for good. What
  // cannot be sealed is refused unless it is `trusted` to whoever gets it.
  Status duplicate(bool readonly, bool trusted, int* fd) noexcept;
  // Which file it is; the same for every descriptor of it.
  Status identify(std::uint64_t* device, std::uint64_t* inode) noexcept;

  bool is_valid() const noexcept;

 private:
  Status create_once(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept;
  Status create_plain(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept;
  Status create_file(const char* name, bool huge_tlb, std::uint64_t size) noexcept;
  Status resize(std::uint64_t size) noexcept;
  Status create_huge(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept;
  Status map_huge(std::uint64_t size) noexcept;
  Status map_plain() noexcept;
  Status seal_against_writers() noexcept;
  bool keep_for_the_next() noexcept;
  Status take(int fd, bool readonly, bool fd_writes) noexcept;
  Status prepare_to_share() noexcept;
  Status finish(Status done) noexcept;

  int fd_ = -1;
  std::uint64_t address_ = 0;
  std::uint64_t nbytes_ = 0;
  std::uint64_t granularity_ = 0;  // what a mapping is a multiple of; 0 for a page
  std::uint64_t mapped_bytes_ = 0;
  bool readonly_ = false;
  bool readers_only_ = false;
  bool fd_reads_only_ = false;
  bool sealed_ = false;
  bool huge_ = false;
  std::uint64_t forks_ = 0;      // when it was made
  std::uint64_t name_hash_ = 0;  // of the name it was made with
  // Until somebody was told which file it is, nobody notices when it becomes other memory.
  std::atomic<bool> unseen_{false};
  // Made later, by whichever thread comes first. No lock, which a fork could leave locked.
  std::atomic<std::uint64_t> reading_address_{0};
  std::atomic<bool> ready_to_share_{false};
};

// Whether shared memory can be made at all, by making some: 0 or an errno.
int try_shared_memory() noexcept;

}  // namespace tensormem

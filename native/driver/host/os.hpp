// Owns: every system call of the host driver. Thin: one call per function, in the driver's words; each asks the fault
// plan first, and answers 0 or an errno. Nothing else under native/driver/host/ may call the operating system.
// Must not know: reservations, physical memory, streams. It keeps no state.
#pragma once

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tensormem::host::os {

enum class Protection : std::uint8_t { none, read, read_write };
enum class Advice : std::uint8_t { will_need, populate_write, huge_pages, collapse, not_in_children };

// --- Addresses ---------------------------------------------------------------------------------------------------
// Addresses without memory, anywhere; and the same put (back) over a range that is ours, whatever is there now.
int reserve(std::uint64_t size, std::uint64_t* address) noexcept;
int reserve_over(std::uint64_t address, std::uint64_t size) noexcept;
// Shares the file's pages at an address that is ours.
int map_file_over(std::uint64_t address, std::uint64_t size, int fd, std::uint64_t offset,
                  Protection protection) noexcept;
int unmap(std::uint64_t address, std::uint64_t size) noexcept;
int protect(std::uint64_t address, std::uint64_t size, Protection protection) noexcept;
int advise(std::uint64_t address, std::uint64_t size, Advice advice) noexcept;
int lock_pages(std::uint64_t address, std::uint64_t size) noexcept;
int unlock_pages(std::uint64_t address, std::uint64_t size) noexcept;
int bind_to_node(std::uint64_t address, std::uint64_t size, std::uint32_t node) noexcept;

// --- Memory files ------------------------------------------------------------------------------------------------
struct FileFacts {
  bool memory_file = false;  // a regular file of shared memory, not of huge TLB pages
  bool shrink_sealed = false;
  bool grow_sealed = false;
  std::uint64_t size = 0;
  std::uint64_t committed_bytes = 0;
};
int create_memfd(const char* name, int* fd) noexcept;
int resize_file(int fd, std::uint64_t size) noexcept;
int allocate_range(int fd, std::uint64_t offset, std::uint64_t size) noexcept;
int punch_hole(int fd, std::uint64_t offset, std::uint64_t size) noexcept;
// Neither shrinks nor grows any more, and nobody can change that.
int seal_size(int fd) noexcept;
// The next pages of a file that have memory, from `offset` on; none: both are the end of the file.
int find_pages(int fd, std::uint64_t offset, std::uint64_t* begin, std::uint64_t* end) noexcept;
int describe_file(int fd, FileFacts* facts) noexcept;
int duplicate(int fd, int* copy) noexcept;
// The same file through a new open file description, which owns locks of its own.
int reopen(int fd, int* fresh) noexcept;
// For nobody but the owner to open, whatever the umask said.
int restrict_to_owner(int fd) noexcept;
int map_shared(int fd, std::uint64_t size, std::uint64_t* address) noexcept;
// The descriptor is gone afterwards, whatever the answer: that is how Linux closes.
int close(int fd) noexcept;

// --- Files of shared memory that other processes may hold ----------------------------------------------------------
enum class FileKind : std::uint8_t { other, shared_memory, huge_tlb, dma_buf };
// `size`: neither shorter nor longer any more; `size_and_writes`: nor newly mapped to be written, what is mapped stays;
// `size_for_good`: nor may anybody add another seal.
enum class Seals : std::uint8_t { size, size_and_writes, size_for_good };
struct SharedFileFacts {
  FileKind kind = FileKind::other;
  bool readable = false;
  bool writable = false;
  bool shrink_sealed = false;
  bool write_sealed = false;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::uint64_t granularity = 0;  // what a mapping is a multiple of
};
int create_shared_file(const char* name, bool huge_tlb, int* fd) noexcept;
// The same without memfd_create: a file of /dev/shm that never has a name. It takes no seals.
int create_nameless_file(int* fd) noexcept;
int describe_shared_file(int fd, SharedFileFacts* facts) noexcept;
int add_seals(int fd, Seals seals) noexcept;
int map_shared_file(int fd, std::uint64_t size, Protection protection, std::uint64_t* address) noexcept;
// The same file through a descriptor that cannot write; the kernel maps it to be read alone.
int reopen_to_read(int fd, int* fresh) noexcept;

// --- Between processes -------------------------------------------------------------------------------------------
// A lock on one byte of a file belongs to the open file description and ends with it, however the process ends. EAGAIN:
// somebody else has it.
int lock_byte(int fd, std::uint64_t at) noexcept;
int unlock_byte(int fd, std::uint64_t at) noexcept;
// Whether somebody else has it, without taking it.
int look_at_byte(int fd, std::uint64_t at, bool* locked) noexcept;
// Sleeps while `word`, in memory shared with other processes, is `seen`; at most so long, and sometimes not at all.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds) noexcept;
void wake_waiters(const std::atomic<std::uint32_t>& word) noexcept;
// Whether one of them is ready, at most so long; a signal ends it sooner.
int wait_for_descriptors(pollfd* watched, std::uint32_t count, std::uint64_t nanoseconds, bool* ready) noexcept;

// --- Threads, heap, texts ----------------------------------------------------------------------------------------
// The thread takes no signals but those of its own faults: handlers belong to the program's threads.
int start_thread(pthread_t* thread, void* (*body)(void*), void* argument) noexcept;
void name_this_thread(const char* name) noexcept;
void join_thread(pthread_t thread) noexcept;
int heap_allocate(std::uint64_t nbytes, std::uint64_t alignment, bool zeroed, std::uint64_t* address) noexcept;
void heap_free(std::uint64_t address, std::uint64_t alignment) noexcept;
// The beginning of a text file, always ended with a zero byte.
int read_text(const char* path, char* buffer, std::size_t capacity) noexcept;
int count_lines(const char* path, std::uint64_t* lines) noexcept;

std::uint64_t page_size() noexcept;
unsigned processor_count() noexcept;
std::uint64_t monotonic_nanoseconds() noexcept;
int register_fork_handlers(void (*prepare)(), void (*parent)(), void (*child)()) noexcept;

}  // namespace tensormem::host::os

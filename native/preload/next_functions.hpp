// Owns: the C library's allocation functions behind ours: those that a program would have called without us, be they
// glibc's or another preloaded allocator's. Must not know: what is done with blocks.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace tensormem {

struct NextFunctions {
  void* (*malloc)(std::size_t) = nullptr;
  void* (*calloc)(std::size_t, std::size_t) = nullptr;
  void* (*realloc)(void*, std::size_t) = nullptr;
  void (*free)(void*) = nullptr;
  int (*posix_memalign)(void**, std::size_t, std::size_t) = nullptr;
  void* (*aligned_alloc)(std::size_t, std::size_t) = nullptr;
  void* (*memalign)(std::size_t, std::size_t) = nullptr;
  void* (*valloc)(std::size_t) = nullptr;
  void* (*pvalloc)(std::size_t) = nullptr;
  std::size_t (*malloc_usable_size)(void*) = nullptr;
  void* (*mmap)(void*, std::size_t, int, int, int, off_t) = nullptr;
  int (*munmap)(void*, std::size_t) = nullptr;
  void (*exit_now)(int) = nullptr;
  void* (*mremap)(void*, std::size_t, std::size_t, int, ...) = nullptr;
};

// Filled in by `find_next_functions`, which the first call of any of them makes; constant ever after.
extern NextFunctions g_next;
void find_next_functions() noexcept;

// While they are looked for, the loader may itself ask for memory: a few bytes that are never freed.
void* early_allocate(std::size_t nbytes) noexcept;
bool is_early(const void* address) noexcept;

}  // namespace tensormem

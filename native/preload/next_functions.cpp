#include "preload/next_functions.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

namespace tensormem {

NextFunctions g_next;

namespace {

constexpr std::size_t kEarlyBytes = 64 * 1024;
constexpr std::size_t kEarlyAlignment = 16;
alignas(kEarlyAlignment) char g_early[kEarlyBytes];
std::atomic<std::size_t> g_early_used{0};

template <typename Function>
void find(const char* name, Function* function) noexcept {
  *function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void find_next_functions() noexcept {
  NextFunctions found;
  find("malloc", &found.malloc);
  find("calloc", &found.calloc);
  find("realloc", &found.realloc);
  find("free", &found.free);
  find("posix_memalign", &found.posix_memalign);
  find("aligned_alloc", &found.aligned_alloc);
  find("memalign", &found.memalign);
  find("valloc", &found.valloc);
  find("pvalloc", &found.pvalloc);
  find("malloc_usable_size", &found.malloc_usable_size);
  find("mmap", &found.mmap);
  find("munmap", &found.munmap);
  find("_exit", &found.exit_now);
  find("mremap", &found.mremap);
  if (found.malloc == nullptr || found.free == nullptr || found.malloc_usable_size == nullptr) std::abort();
  g_next = found;
}

void* early_allocate(std::size_t nbytes) noexcept {
  const std::size_t rounded = (nbytes + kEarlyAlignment - 1) / kEarlyAlignment * kEarlyAlignment;
  const std::size_t offset = g_early_used.fetch_add(rounded, std::memory_order_relaxed);
  return rounded < nbytes || offset + rounded > kEarlyBytes ? nullptr : g_early + offset;
}

bool is_early(const void* address) noexcept { return address >= g_early && address < g_early + kEarlyBytes; }

}  // namespace tensormem

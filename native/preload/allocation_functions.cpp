// Owns: the functions that a preloaded library puts in front of the C library's: blocks from a size on are reported to
// the recorder, and everything goes on to the next function. Below that size a call costs a comparison (and for `free`
// a look at the block's header, which freeing it reads anyway). Must not know: files, Python.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "preload/next_functions.hpp"
#include "preload/owners.hpp"
#include "trace/environment.hpp"
#include "trace/foreign_blocks.hpp"
#include "trace/record.hpp"
#include "trace/recorder.hpp"
#include "trace/unseen.hpp"

namespace tensormem {

namespace {

constexpr std::size_t kUnready = 0;  // the next functions have not been looked for
constexpr std::size_t kNever = SIZE_MAX;
constexpr std::uint64_t kMostExit_ns = 2'000'000'000;

std::atomic<std::size_t> g_from{kUnready};  // blocks of so many bytes and more are looked at
std::atomic<bool> g_follows{false};         // this process has a file of its own as soon as there is something to write
thread_local bool t_finding = false;

std::size_t from() noexcept { return g_from.load(std::memory_order_relaxed); }
std::uint64_t number(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

// False while this very thread is looking for them.
bool ready() noexcept {
  if (g_next.malloc != nullptr) [[likely]]
    return true;
  if (t_finding) return false;
  t_finding = true;
  find_next_functions();
  t_finding = false;
  std::size_t expected = kUnready;
  g_from.compare_exchange_strong(expected, kNever);
  return true;
}

bool is_seen(std::size_t nbytes) noexcept {
  if (nbytes < from() || from() == kNever || TraceUnseen::is_on()) return false;
  if (trace_is_on()) return true;
  if (!g_follows.exchange(false)) return false;
  const TraceUnseen unseen;
  const int before = errno;
  const bool started = start_trace_of_environment().ok();
  errno = before;
  return started && trace_is_on();
}

// What a program sees in `errno` is not our doing.
class Watch {
 public:
  Watch() noexcept : errno_(errno) {}
  ~Watch() { errno = errno_; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  const TraceUnseen unseen_;
  const int errno_;
};

[[gnu::noinline]] void* begin(void* block, std::size_t nbytes, const void* caller) noexcept {
  if (block == nullptr || !is_seen(nbytes)) return block;
  const Watch watch;
  const ForeignOwner owner = owner_of_call(caller);
  if (owner.resource != 0) ForeignBlocks::instance().begin(owner, number(block), nbytes);
  return block;
}

[[gnu::noinline]] void end(void* block) noexcept {
  if (TraceUnseen::is_on()) return;
  const Watch watch;
  ForeignBlocks::instance().end(number(block));
}

[[gnu::noinline]] void* resize(void* block, std::size_t nbytes, const void* caller) noexcept {
  ForeignBlock known;
  bool was_seen = false;
  if (!TraceUnseen::is_on()) {
    const Watch watch;
    was_seen = ForeignBlocks::instance().forget(number(block), &known);
  }
  void* const resized = g_next.realloc(block, nbytes);
  const bool failed = resized == nullptr && nbytes != 0;
  if (was_seen) {
    const Watch watch;
    if (failed) {
      ForeignBlocks::instance().remember(number(block), known);
    } else {
      ForeignBlocks::report_end(number(block), known);
    }
  }
  return begin(resized, nbytes, caller);
}

bool is_small(void* block) noexcept { return from() == kNever || g_next.malloc_usable_size(block) < from(); }

void* map(void* wanted, std::size_t nbytes, int protection, int flags, int file, off_t offset,
          const void* caller) noexcept {
  if (!ready()) return MAP_FAILED;
  void* const address = g_next.mmap(wanted, nbytes, protection, flags, file, offset);
  if (address == MAP_FAILED || nbytes < from() || from() == kNever) return address;
  // Pages of a file are the file's, and addresses that are only reserved hold nothing.
  const bool holds_memory = (flags & MAP_ANONYMOUS) != 0 && protection != PROT_NONE;
  if (!is_seen(nbytes)) return address;
  const Watch watch;
  const ForeignOwner owner = holds_memory ? owner_of_call(caller) : ForeignOwner{};
  if (owner.resource != 0) {
    ForeignBlocks::instance().begin_range(owner, number(address), nbytes);
  } else if ((flags & MAP_FIXED) != 0) {
    ForeignBlocks::instance().end_range(number(address), nbytes);
  }
  return address;
}

// "" and "off": nothing of the C library's is looked at.
std::size_t size_of_environment() {
  const char* text = std::getenv("TENSORMEM_TRACE_MALLOC");
  if (text == nullptr) return kNever;
  char* rest = nullptr;
  const unsigned long long size = std::strtoull(text, &rest, 10);
  return rest == text || *rest != '\0' ? kNever : size == 0 ? 1 : static_cast<std::size_t>(size);
}

// The library is loaded, and those that it stands on are: the program begins after this.
[[gnu::constructor]] void start() {
  (void)ready();
  const std::size_t size = size_of_environment();
  if (size == kNever || !environment_asks_for_trace()) return;
  const TraceUnseen unseen;
  const bool is_first = std::getenv("_TENSORMEM_TRACE_OWNER") == nullptr || !environment_follows_children();
  if (environment_follows_children()) {
    pthread_atfork(nullptr, nullptr, [] { g_follows.store(true); });
  }
  if (is_first) {
    const Status started = start_trace_of_environment();
    if (!started.ok()) {
      std::fprintf(stderr, "tensormem: nothing is recorded: TENSORMEM_TRACE=%s: %s: %s\n",
                   std::getenv("TENSORMEM_TRACE"), started.failure().what,
                   std::strerror(started.failure().driver_code));
      return;
    }
  } else {
    g_follows.store(true);
  }
  g_from.store(size, std::memory_order_relaxed);
}

}  // namespace

}  // namespace tensormem

using namespace tensormem;

#define TM_SEEN extern "C" [[gnu::visibility("default")]]
#define TM_CALLER __builtin_return_address(0)

TM_SEEN void* malloc(std::size_t nbytes) {
  if (nbytes < from()) [[likely]]
    return g_next.malloc(nbytes);
  if (!ready()) return early_allocate(nbytes);
  return begin(g_next.malloc(nbytes), nbytes, TM_CALLER);
}

TM_SEEN void* calloc(std::size_t count, std::size_t each) {
  std::size_t nbytes = 0;
  const bool is_too_large = __builtin_mul_overflow(count, each, &nbytes);
  if (nbytes < from() && !is_too_large) [[likely]]
    return g_next.calloc(count, each);
  if (!ready()) return is_too_large ? nullptr : early_allocate(nbytes);
  return begin(g_next.calloc(count, each), nbytes, TM_CALLER);
}

TM_SEEN void free(void* block) {
  if (block == nullptr) return;
  if (!ready() || is_early(block)) return;
  if (!is_small(block)) [[unlikely]]
    end(block);
  g_next.free(block);
}

TM_SEEN void* realloc(void* block, std::size_t nbytes) {
  if (!ready() || is_early(block)) {
    void* const moved = ready() ? g_next.malloc(nbytes) : early_allocate(nbytes);
    // Its size is not known; what lies behind it in the buffer does no harm.
    if (moved != nullptr && block != nullptr) std::memmove(moved, block, nbytes);
    return moved;
  }
  if (block == nullptr) return begin(g_next.realloc(nullptr, nbytes), nbytes, TM_CALLER);
  if (nbytes < from() && is_small(block)) [[likely]]
    return g_next.realloc(block, nbytes);
  return resize(block, nbytes, TM_CALLER);
}

TM_SEEN void* reallocarray(void* block, std::size_t count, std::size_t each) {
  std::size_t nbytes = 0;
  if (__builtin_mul_overflow(count, each, &nbytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (!ready()) return nullptr;
  if (block == nullptr) return begin(g_next.realloc(nullptr, nbytes), nbytes, TM_CALLER);
  if (nbytes < from() && is_small(block)) return g_next.realloc(block, nbytes);
  return resize(block, nbytes, TM_CALLER);
}

TM_SEEN int posix_memalign(void** block, std::size_t alignment, std::size_t nbytes) {
  if (!ready()) return ENOMEM;
  const int refused = g_next.posix_memalign(block, alignment, nbytes);
  if (refused == 0 && nbytes >= from()) begin(*block, nbytes, TM_CALLER);
  return refused;
}

TM_SEEN void* aligned_alloc(std::size_t alignment, std::size_t nbytes) {
  if (!ready()) return nullptr;
  if (nbytes < from()) [[likely]]
    return g_next.aligned_alloc(alignment, nbytes);
  return begin(g_next.aligned_alloc(alignment, nbytes), nbytes, TM_CALLER);
}

TM_SEEN void* memalign(std::size_t alignment, std::size_t nbytes) {
  if (!ready()) return nullptr;
  if (nbytes < from()) [[likely]]
    return g_next.memalign(alignment, nbytes);
  return begin(g_next.memalign(alignment, nbytes), nbytes, TM_CALLER);
}

TM_SEEN void* valloc(std::size_t nbytes) {
  if (!ready()) return nullptr;
  return begin(g_next.valloc(nbytes), nbytes, TM_CALLER);
}

TM_SEEN void* pvalloc(std::size_t nbytes) {
  if (!ready()) return nullptr;
  return begin(g_next.pvalloc(nbytes), nbytes, TM_CALLER);
}

TM_SEEN void* mmap(void* wanted, std::size_t nbytes, int protection, int flags, int file, off_t offset) {
  return map(wanted, nbytes, protection, flags, file, offset, TM_CALLER);
}

TM_SEEN void* mmap64(void* wanted, std::size_t nbytes, int protection, int flags, int file, off64_t offset) {
  return map(wanted, nbytes, protection, flags, file, offset, TM_CALLER);
}

TM_SEEN int munmap(void* address, std::size_t nbytes) {
  if (!ready()) return -1;
  // Before: the addresses may be another's as soon as they are free.
  if (from() != kNever && !TraceUnseen::is_on()) {
    const Watch watch;
    ForeignBlocks::instance().end_range(number(address), nbytes);
  }
  return g_next.munmap(address, nbytes);
}

TM_SEEN void* mremap(void* address, std::size_t before, std::size_t after, int flags, ...) {
  if (!ready()) return MAP_FAILED;
  va_list arguments;
  va_start(arguments, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  void* const moved = g_next.mremap(address, before, after, flags, wanted);
  if (moved == MAP_FAILED || from() == kNever || TraceUnseen::is_on()) return moved;
  const Watch watch;
  const ForeignOwner owner = ForeignBlocks::instance().owner_of_range(number(address));
  if (owner.resource == 0) return moved;
  ForeignBlocks::instance().end_range(number(address), before);
  if (trace_is_on()) ForeignBlocks::instance().begin_range(owner, number(moved), after);
  return moved;
}

// Processes that fork without exec end here, past all exit handlers: workers of a pool, for example.
TM_SEEN [[noreturn]] void _exit(int code) {
  if (ready() && trace_is_on()) TraceRecorder::instance().finish_at_exit(kMostExit_ns);
  if (g_next.exit_now != nullptr) g_next.exit_now(code);
  std::abort();
}

TM_SEEN [[noreturn]] void _Exit(int code) { _exit(code); }

// Owns: the plan by which a system call fails on purpose, so that a test can fail every call of a scenario in turn and
// see that nothing leaks. One plan per process, normally off; an off plan costs one relaxed load per system call.
// Must not know: what the calls do. Only os.cpp consults it.
#pragma once

#include <atomic>
#include <cstdint>

// Every kind of call that os.cpp makes: identifier, and the name that a plan and a failure call it by.
#define TM_SYSTEM_CALLS(X)           \
  X(any, "any")                      \
  X(map, "mmap")                     \
  X(unmap, "munmap")                 \
  X(protect, "mprotect")             \
  X(advise, "madvise")               \
  X(create_memfd, "memfd_create")    \
  X(resize, "ftruncate")             \
  X(allocate_range, "fallocate")     \
  X(file_control, "fcntl")           \
  X(describe, "fstat")               \
  X(close, "close")                  \
  X(lock_pages, "mlock")             \
  X(unlock_pages, "munlock")         \
  X(bind_node, "mbind")              \
  X(create_thread, "pthread_create") \
  X(heap, "malloc")                  \
  X(read_file, "open")

namespace tensormem::host {

enum class SystemCall : std::uint8_t {
#define TM_CALL(identifier, name) identifier,
  TM_SYSTEM_CALLS(TM_CALL)
#undef TM_CALL
};

namespace fault_plan {

// From now on, fail the `nth` call (1 is the next one) of `kind` with `error` (an errno), once. With nth = 0 nothing
// fails and calls are only counted. Arming replaces the earlier plan and restarts the count.
void arm(SystemCall kind, std::uint64_t nth, int error) noexcept;
void disarm() noexcept;
// Calls of the planned kind since `arm`; and whether the planned one has failed.
std::uint64_t calls_made() noexcept;
bool has_fired() noexcept;

// The kinds by number and by name: 0 is "any". An unknown name gives -1, an unknown number null.
int kind_count() noexcept;
const char* kind_name(int kind) noexcept;
int kind_from_name(const char* name) noexcept;

extern std::atomic<bool> g_armed;
int consult_slow(SystemCall call) noexcept;

// The errno this call must fail with, or 0 to go ahead.
inline int consult(SystemCall call) noexcept {
  if (!g_armed.load(std::memory_order_relaxed)) [[likely]]
    return 0;
  return consult_slow(call);
}

}  // namespace fault_plan
}  // namespace tensormem::host

// Owns: what the tests of the host driver ask about their own process: memory areas, descriptors, threads, resident
// bytes; a body run in a forked child; and a scenario repeated with every one of its system calls failing in turn.
#pragma once

#include <dirent.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "driver/host/fault_plan.hpp"
#include "driver/host/host_driver.hpp"
#include "tests/check.hpp"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TM_SANITIZED 1
#else
#define TM_SANITIZED 0
#endif

namespace tensormem::test {

// ThreadSanitizer loses track of threads that a forked child of a threaded process starts ("dup thread with used id").
// There, and only there, children of these tests start none.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kChildrenStartThreads = false;
#else
inline constexpr bool kChildrenStartThreads = true;
#endif
// The heaps of sanitizers are not safe to fork while other threads allocate: the child hangs in them. Tests that fork
// amid such threads ask this first, and say so when they cannot.
inline bool can_fork_amid_threads() {
  if (TM_SANITIZED) std::fprintf(stderr, "  not tried under a sanitizer: forking while other threads allocate\n");
  return !TM_SANITIZED;
}

inline std::uint64_t count_entries(const char* folder) {
  DIR* const open = opendir(folder);
  std::uint64_t count = 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

inline std::uint64_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0;
  unsigned long resident = 0;
  const int found = std::fscanf(file, "%lu %lu", &total, &resident);
  std::fclose(file);
  return found == 2 ? resident * static_cast<std::uint64_t>(getpagesize()) : 0;
}

// What must be the same before and after something that claims to have cleaned up.
struct ProcessState {
  std::uint64_t descriptors = 0;
  std::uint64_t threads = 0;
  std::uint64_t memory_file_areas = 0;
  std::uint64_t reserved_bytes = 0;  // private areas that nobody can touch; sanitizers have their own

  static ProcessState now() {
    ProcessState state;
    state.descriptors = count_entries("/proc/self/fd");
    state.threads = count_entries("/proc/self/task");
    std::FILE* const file = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      unsigned long begin = 0;
      unsigned long end = 0;
      char access[8] = {};
      if (std::sscanf(line, "%lx-%lx %7s", &begin, &end, access) != 3) continue;
      if (std::strstr(line, "memfd:tensormem") != nullptr) ++state.memory_file_areas;
      if (!TM_SANITIZED && std::strcmp(access, "---p") == 0) state.reserved_bytes += end - begin;
    }
    std::fclose(file);
    return state;
  }
  bool operator==(const ProcessState&) const = default;

  bool is_restored() const {
    return settles([this] { return now() == *this; });
  }
  bool threads_are_restored() const {
    return settles([this] { return now().threads == threads; });
  }

 private:
  // A thread that has been joined may be listed for a moment longer.
  template <typename Condition>
  static bool settles(Condition&& condition) {
    for (int tries = 0; tries < 100000; ++tries) {
      if (condition()) return true;
      sched_yield();
    }
    return false;
  }
};

inline bool holds_nothing() {
  const HostCounters now = host_driver().counters();
  return now.streams == 0 && now.events == 0 && now.page_blocks == 0 && now.pins == 0 && now.reservations == 0 &&
         now.mappings == 0 && now.physicals == 0 && now.committed_bytes == 0;
}

// Runs the body in a forked child and answers waitpid's status. The child leaves by `_exit` with what the body returns,
// or dies of what it does: sanitizers are kept from catching that.
template <typename Body>
int in_child(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    _exit(body());
  }
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

inline bool exited_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
inline bool died_of(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

// Runs the scenario once for every system call it makes, failing that call with `error`. The scenario must clean up
// whatever it got, whether or not something failed; nothing may be left behind, and it must work again afterwards.
template <typename Scenario>
std::uint64_t fail_every_call(Scenario&& scenario, int error) {
  namespace plan = host::fault_plan;
  scenario();  // what is made once and kept
  plan::arm(host::SystemCall::any, 0, 0);
  scenario();
  const std::uint64_t calls = plan::calls_made();
  plan::disarm();
  const ProcessState before = ProcessState::now();
  for (std::uint64_t nth = 1; nth <= calls; ++nth) {
    plan::arm(host::SystemCall::any, nth, error);
    scenario();
    TM_CHECK(plan::has_fired() || plan::calls_made() < nth);
    plan::disarm();
    TM_CHECK(holds_nothing());
    scenario();
    TM_CHECK(holds_nothing());
    TM_CHECK(host_driver().counters().leftovers == 0);
    TM_CHECK(host_driver().is_valid());
    TM_CHECK(before.is_restored());
  }
  return calls;
}

}  // namespace tensormem::test

#include "resource/wall_clock.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tensormem {

namespace {

// Asked for once per thread: the system call costs more than all the rest of a record.
thread_local std::uint32_t t_number = 0;

[[gnu::noinline]] std::uint32_t ask_number() noexcept {
  // The one thread that lives on in a forked child has another number there.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { t_number = 0; });
  (void)registered;
  t_number = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return t_number;
}

}  // namespace

std::uint32_t thread_number() noexcept { return t_number != 0 ? t_number : ask_number(); }

}  // namespace tensormem

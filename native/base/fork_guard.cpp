#include "base/fork_guard.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace tensormem {

namespace {

std::atomic<std::uint64_t> g_forks{0};

}  // namespace

std::uint64_t fork_count() noexcept { return g_forks.load(std::memory_order_relaxed); }

struct ForkGuards {
  std::mutex mutex;
  ForkGuard* youngest = nullptr;
  ForkGuard* oldest = nullptr;

  // Never destroyed: a process may fork while it exits.
  static ForkGuards& instance() {
    static ForkGuards* const guards = [] {
      auto* made = new ForkGuards;
      pthread_atfork(&before, &after, &after);
      return made;
    }();
    return *guards;
  }

  static void before() {
    ForkGuards& guards = instance();
    guards.mutex.lock();
    for (ForkGuard* each = guards.youngest; each != nullptr; each = each->older_) each->acquire_(each->lock_);
    g_forks.fetch_add(1, std::memory_order_relaxed);
  }
  // The same in the parent and in the child: the thread that forked holds all of them in both.
  static void after() {
    ForkGuards& guards = instance();
    for (ForkGuard* each = guards.oldest; each != nullptr; each = each->younger_) each->release_(each->lock_);
    guards.mutex.unlock();
  }

  void add(ForkGuard* guard) {
    const std::lock_guard lock(mutex);
    guard->older_ = youngest;
    (youngest != nullptr ? youngest->younger_ : oldest) = guard;
    youngest = guard;
  }
  void remove(ForkGuard* guard) {
    const std::lock_guard lock(mutex);
    (guard->older_ != nullptr ? guard->older_->younger_ : oldest) = guard->younger_;
    (guard->younger_ != nullptr ? guard->younger_->older_ : youngest) = guard->older_;
  }
};

void ForkGuard::enlist() { ForkGuards::instance().add(this); }

ForkGuard::~ForkGuard() { ForkGuards::instance().remove(this); }

}  // namespace tensormem

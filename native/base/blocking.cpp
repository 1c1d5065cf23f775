#include "base/blocking.hpp"

namespace tensormem {

namespace {

std::atomic<void* (*)()> g_enter{nullptr};
std::atomic<void (*)(void*)> g_leave{nullptr};

}  // namespace

void install_blocking_hooks(const BlockingHooks& hooks) {
  g_leave.store(hooks.leave, std::memory_order_release);
  g_enter.store(hooks.enter, std::memory_order_release);
}

BlockingRegion::BlockingRegion() : held_(nullptr) {
  if (auto* enter = g_enter.load(std::memory_order_acquire); enter != nullptr) held_ = enter();
}

BlockingRegion::~BlockingRegion() {
  if (held_ != nullptr) g_leave.load(std::memory_order_acquire)(held_);
}

}  // namespace tensormem

#include "base/used_range.hpp"

#include <unistd.h>

#include <limits>
#include <mutex>

#include "base/fork_guard.hpp"

namespace tensormem {

std::atomic<std::uint64_t> g_used_ranges{0};

namespace {

struct Uses {
  std::mutex mutex;
  ForkGuard fork_guard{mutex};
  UsedRange* first = nullptr;
};

Uses& uses() {
  // Never destroyed: calls may outlive every static.
  static Uses& all = *new Uses;
  return all;
}

std::uint64_t end_of(std::uint64_t address, std::uint64_t nbytes) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return nbytes > most - address ? most : address + nbytes;
}

}  // namespace

void UsedRange::begin(std::uint64_t address) noexcept {
  end();
  Uses& all = uses();
  const std::lock_guard lock(all.mutex);
  address_ = address;
  nbytes_ = 1;
  process_ = getpid();
  previous_ = nullptr;
  next_ = all.first;
  if (next_ != nullptr) next_->previous_ = this;
  all.first = this;
  g_used_ranges.fetch_add(1, std::memory_order_release);
}

void UsedRange::reach(std::uint64_t nbytes) noexcept {
  if (nbytes_ == 0 || nbytes <= 1) return;
  const std::lock_guard lock(uses().mutex);
  nbytes_ = nbytes;
}

void UsedRange::end() noexcept {
  if (nbytes_ == 0) return;
  Uses& all = uses();
  const std::lock_guard lock(all.mutex);
  (previous_ == nullptr ? all.first : previous_->next_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  nbytes_ = 0;
  g_used_ranges.fetch_sub(1, std::memory_order_release);
}

std::uint64_t count_uses(std::uint64_t address, std::uint64_t nbytes) noexcept {
  Uses& all = uses();
  const std::lock_guard lock(all.mutex);
  const std::uint64_t end = end_of(address, nbytes);
  const pid_t here = getpid();
  std::uint64_t count = 0;
  for (const UsedRange* use = all.first; use != nullptr; use = use->next_) {
    if (use->process_ != here) continue;
    if (use->address_ < end && address < end_of(use->address_, use->nbytes_)) ++count;
  }
  return count;
}

}  // namespace tensormem

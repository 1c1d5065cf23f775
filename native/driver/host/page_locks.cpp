#include "driver/host/page_locks.hpp"

#include <iterator>
#include <new>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

bool PageLocks::pages_of(std::uint64_t address, std::uint64_t nbytes, std::uint64_t* begin,
                         std::uint64_t* end) noexcept {
  std::uint64_t last = 0;
  *begin = align_down(address, os::page_size());
  return checked_add(address, nbytes, &last) && checked_align_up(last, os::page_size(), end);
}

// Make `address` the start of a step, so that counts can change there.
void PageLocks::split_at(std::uint64_t address) {
  auto after = steps_.upper_bound(address);
  const std::uint64_t count = after == steps_.begin() ? 0 : std::prev(after)->second;
  steps_.emplace_hint(after, address, count);
}

// Drop steps that change nothing.
void PageLocks::merge(std::uint64_t begin, std::uint64_t end) noexcept {
  auto step = steps_.lower_bound(begin);
  std::uint64_t count = step == steps_.begin() ? 0 : std::prev(step)->second;
  while (step != steps_.end() && step->first <= end) {
    if (step->second == count) {
      step = steps_.erase(step);
    } else {
      count = step->second;
      ++step;
    }
  }
}

void PageLocks::add(std::uint64_t begin, std::uint64_t end, int change) noexcept {
  for (auto step = steps_.find(begin); step != steps_.end() && step->first < end; ++step) {
    TM_ASSERT(change > 0 || step->second > 0);
    step->second += static_cast<std::uint64_t>(change);
  }
}

int PageLocks::unlock_unpinned(std::uint64_t begin, std::uint64_t end) noexcept {
  int error = 0;
  for (auto step = steps_.find(begin); step != steps_.end() && step->first < end; ++step) {
    if (step->second != 0) continue;
    const int refused = os::unlock_pages(step->first, std::next(step)->first - step->first);
    if (refused != 0) error = refused;
  }
  return error;
}

Status PageLocks::pin(std::uint64_t address, std::uint64_t nbytes) noexcept try {
  if (address == 0) return Status::fail(Code::invalid_argument, "the address is null");
  if (nbytes == 0) return Status::fail(Code::invalid_size, "no bytes to pin", nbytes);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!pages_of(address, nbytes, &begin, &end)) {
    return Status::fail(Code::invalid_size, "the range reaches beyond the address space", nbytes);
  }
  const std::lock_guard lock(mutex_);
  split_at(begin);
  split_at(end);
  auto pin = pins_.try_emplace({address, nbytes}, 0).first;
  if (const int error = os::lock_pages(begin, end - begin); error != 0) {
    // A part may have been locked before the refusal.
    (void)unlock_unpinned(begin, end);
    if (pin->second == 0) pins_.erase(pin);
    merge(begin, end);
    return Status::driver_error(error, "mlock");
  }
  ++pin->second;
  add(begin, end, 1);
  merge(begin, end);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note a pin", sizeof(Range));
}

bool PageLocks::remove_pin(std::uint64_t address, std::uint64_t nbytes) noexcept {
  const auto pin = pins_.find({address, nbytes});
  if (pin == pins_.end()) return false;
  if (--pin->second == 0) pins_.erase(pin);
  return true;
}

Status PageLocks::unpin(std::uint64_t address, std::uint64_t nbytes) noexcept try {
  const std::lock_guard lock(mutex_);
  if (!pins_.contains({address, nbytes})) {
    return Status::fail(Code::invalid_argument, "this address and size are not pinned");
  }
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  pages_of(address, nbytes, &begin, &end);
  split_at(begin);
  split_at(end);
  add(begin, end, -1);
  if (const int error = unlock_unpinned(begin, end); error != 0) {
    (void)os::lock_pages(begin, end - begin);
    add(begin, end, 1);
    merge(begin, end);
    return Status::driver_error(error, "munlock");
  }
  merge(begin, end);
  remove_pin(address, nbytes);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note an unpin", sizeof(Range));
}

void PageLocks::forget(std::uint64_t address, std::uint64_t nbytes) noexcept try {
  const std::lock_guard lock(mutex_);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!remove_pin(address, nbytes) || !pages_of(address, nbytes, &begin, &end)) return;
  split_at(begin);
  split_at(end);
  add(begin, end, -1);
  merge(begin, end);
} catch (const std::bad_alloc&) {
  // The pages stay counted: at worst a later pin there is not undone.
}

std::uint64_t PageLocks::pin_count() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  for (const auto& [range, times] : pins_) count += times;
  return count;
}

bool PageLocks::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t last = 0;
  for (const auto& [address, count] : steps_) {
    if (!is_aligned(address, os::page_size()) || (pins_.empty() && count != 0)) return false;
    last = count;
  }
  return last == 0;
}

}  // namespace tensormem::host

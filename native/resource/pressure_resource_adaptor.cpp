#include "resource/pressure_resource_adaptor.hpp"

#include <algorithm>

namespace tensormem {

namespace {

// The adaptors whose callbacks this thread is in, innermost first.
struct Telling {
  const PressureResourceAdaptor* adaptor;
  const Telling* outer;
};
thread_local const Telling* t_telling = nullptr;

bool is_telling(const PressureResourceAdaptor* adaptor) {
  for (const Telling* each = t_telling; each != nullptr; each = each->outer)
    if (each->adaptor == adaptor) return true;
  return false;
}

}  // namespace

Status PressureResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  if (level() == PressureLevel::critical) [[unlikely]]
    TM_TRY(tell(PressureLevel::critical));
  TM_TRY(upstream().allocate(request, block));
  used_.fetch_add(request.nbytes);
  // The block is the caller's whatever the callback says: a failure of it must not lose memory.
  (void)tell_if_changed().ok();
  return {};
}

Status PressureResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  Status deallocated = upstream().deallocate(block, stream, end);
  if (!is_taken_back(deallocated)) return deallocated;
  if (*end == BlockState::retired) {
    const std::lock_guard lock(mutex_);
    retired_.push_back(block);
    return deallocated;
  }
  used_.fetch_sub(block.nbytes);
  (void)tell_if_changed().ok();
  return deallocated;
}

Status PressureResourceAdaptor::reap_pending() {
  Status reaped = upstream().reap_pending();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(retired_, [this](const Block& block) {
      if (upstream().state_of(block) == BlockState::retired) return false;
      used_.fetch_sub(block.nbytes);
      return true;
    });
  }
  (void)tell_if_changed().ok();
  return reaped;
}

PressureLevel PressureResourceAdaptor::level_at(std::uint64_t used, PressureLevel before) const {
  // Falling out of a level takes `hysteresis` bytes more than falling below its mark.
  const auto is_held = [&](std::uint64_t mark) { return used >= mark - std::min(mark, marks_.hysteresis); };
  if (used >= marks_.critical || (before == PressureLevel::critical && is_held(marks_.critical)))
    return PressureLevel::critical;
  if (used >= marks_.warn || (before != PressureLevel::normal && is_held(marks_.warn))) return PressureLevel::warn;
  return PressureLevel::normal;
}

// Looks again after each change: the use may have moved on between the look and the change, and whoever moved it may
// have seen the level of before.
bool PressureResourceAdaptor::update() {
  PressureLevel level = level_.load();
  const PressureLevel before = level;
  while (true) {
    const PressureLevel wanted = level_at(used_.load(), level);
    if (wanted == level) return level != before;
    if (level_.compare_exchange_weak(level, wanted)) level = wanted;
  }
}

Status PressureResourceAdaptor::tell_if_changed() {
  if (!update()) [[likely]]
    return {};
  return tell(level());
}

Status PressureResourceAdaptor::tell(PressureLevel level) {
  if (is_telling(this)) return {};
  const Telling telling{this, t_telling};
  t_telling = &telling;
  Status told = callback_(level, bytes_outstanding());
  // What it freed or allocated may have changed the level again.
  for (PressureLevel now = this->level(); told.ok() && now != level; now = this->level()) {
    level = now;
    told = callback_(level, bytes_outstanding());
  }
  t_telling = telling.outer;
  return told;
}

}  // namespace tensormem

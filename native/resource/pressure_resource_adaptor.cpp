#include "resource/pressure_resource_adaptor.hpp"

namespace tensormem {

Status PressureResourceAdaptor::allocate(const AllocRequest& request, Block* block) {
  if (level() == PressureLevel::critical) [[unlikely]] {
    TM_TRY(callback_(PressureLevel::critical, bytes_outstanding()));
  }
  TM_TRY(upstream().allocate(request, block));
  const std::uint64_t used = used_.fetch_add(request.nbytes, std::memory_order_relaxed) + request.nbytes;
  // The block is the caller's whatever the callback says: a failure of it must not lose memory.
  (void)tell_if_changed(used).ok();
  return {};
}

Status PressureResourceAdaptor::deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(upstream().deallocate(block, stream, end));
  if (*end != BlockState::freed) {
    const std::lock_guard lock(mutex_);
    retired_.push_back(block);
    return {};
  }
  const std::uint64_t used = used_.fetch_sub(block.nbytes, std::memory_order_relaxed) - block.nbytes;
  (void)tell_if_changed(used).ok();
  return {};
}

Status PressureResourceAdaptor::reap_pending() {
  Status reaped = upstream().reap_pending();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(retired_, [this](const Block& block) {
      if (upstream().state_of(block) != BlockState::freed) return false;
      used_.fetch_sub(block.nbytes, std::memory_order_relaxed);
      return true;
    });
  }
  (void)tell_if_changed(bytes_outstanding()).ok();
  return reaped;
}

PressureLevel PressureResourceAdaptor::level_at(std::uint64_t used, PressureLevel before) const {
  // Falling out of a level takes `hysteresis` bytes more than falling below its mark.
  const std::uint64_t falling = used + marks_.hysteresis;
  if (used >= marks_.critical || (before == PressureLevel::critical && falling >= marks_.critical))
    return PressureLevel::critical;
  if (used >= marks_.warn || (before != PressureLevel::normal && falling >= marks_.warn)) return PressureLevel::warn;
  return PressureLevel::normal;
}

bool PressureResourceAdaptor::update(std::uint64_t used) {
  PressureLevel before = level_.load(std::memory_order_relaxed);
  while (true) {
    const PressureLevel after = level_at(used, before);
    if (after == before) return false;
    if (level_.compare_exchange_weak(before, after, std::memory_order_relaxed)) return true;
  }
}

Status PressureResourceAdaptor::tell_if_changed(std::uint64_t used) {
  if (!update(used)) [[likely]]
    return {};
  return callback_(level(), used);
}

}  // namespace tensormem

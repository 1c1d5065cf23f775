#include "resource/limiting_resource_adaptor.hpp"

#include <algorithm>

namespace tensormem {

Status LimitingResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  TM_TRY(budget_->claim(request.nbytes));
  Status allocated = upstream().allocate(request, block);
  if (!allocated.ok()) [[unlikely]]
    budget_->give_back(request.nbytes);
  return allocated;
}

Status LimitingResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  const std::uint64_t nbytes = block.nbytes;  // the caller's block may be gone when its maker is done with it
  Status deallocated = upstream().deallocate(block, stream, end);
  if (!is_taken_back(deallocated)) return deallocated;
  if (*end != BlockState::retired) [[likely]] {
    budget_->give_back(nbytes);
    return deallocated;
  }
  const std::lock_guard lock(mutex_);
  retired_.push_back(block);
  return deallocated;
}

Status LimitingResourceAdaptor::reap_pending() {
  Status reaped = upstream().reap_pending();
  (void)settle_retired();
  return reaped;
}

std::uint64_t LimitingResourceAdaptor::release_idle(std::uint64_t) noexcept {
  // What cannot be reaped stays charged, and the refusal says how much that is.
  (void)upstream().reap_pending().ok();
  return settle_retired();
}

// Gives up the charge of blocks that are free by now; says how many bytes.
std::uint64_t LimitingResourceAdaptor::settle_retired() {
  std::uint64_t freed = 0;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(retired_, [&](const Block& block) {
      if (upstream().state_of(block) == BlockState::retired) return false;
      freed += block.nbytes;
      return true;
    });
  }
  if (freed != 0) budget_->give_back(freed);
  return freed;
}

Status LimitingResourceAdaptor::promise(std::uint64_t nbytes) {
  if (nbytes == 0) return Status::fail(Code::invalid_size, "a promise of nothing", nbytes);
  TM_TRY(budget_->claim(nbytes));
  promised_.fetch_add(nbytes, std::memory_order_relaxed);
  return {};
}

void LimitingResourceAdaptor::withdraw_promise(std::uint64_t nbytes) {
  std::uint64_t promised = promised_.load(std::memory_order_relaxed);
  std::uint64_t withdrawn = 0;
  do {
    withdrawn = std::min(nbytes, promised);
  } while (!promised_.compare_exchange_weak(promised, promised - withdrawn, std::memory_order_relaxed));
  budget_->give_back(withdrawn);
}

Status LimitingResourceAdaptor::allocate_promised(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  std::uint64_t promised = promised_.load(std::memory_order_relaxed);
  do {
    if (request.nbytes > promised)
      return Status::fail(Code::out_of_budget, "not that much was promised", request.nbytes, charged(), promised,
                          limit());
  } while (!promised_.compare_exchange_weak(promised, promised - request.nbytes, std::memory_order_relaxed));
  Status allocated = upstream().allocate(request, block);
  if (!allocated.ok()) promised_.fetch_add(request.nbytes, std::memory_order_relaxed);
  return allocated;
}

}  // namespace tensormem

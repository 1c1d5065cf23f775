#include "resource/limiting_resource_adaptor.hpp"

#include <algorithm>

namespace tensormem {

Status LimitingResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  TM_TRY(charge(request.nbytes));
  Status allocated = upstream().allocate(request, block);
  if (!allocated.ok()) [[unlikely]]
    charged_.fetch_sub(request.nbytes, std::memory_order_relaxed);
  return allocated;
}

Status LimitingResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  Status deallocated = upstream().deallocate(block, stream, end);
  if (!is_taken_back(deallocated)) return deallocated;
  if (*end != BlockState::retired) [[likely]] {
    charged_.fetch_sub(block.nbytes, std::memory_order_relaxed);
    return deallocated;
  }
  const std::lock_guard lock(mutex_);
  retired_.push_back(block);
  return deallocated;
}

Status LimitingResourceAdaptor::reap_pending() {
  Status reaped = upstream().reap_pending();
  const std::lock_guard lock(mutex_);
  std::erase_if(retired_, [this](const Block& block) {
    if (upstream().state_of(block) == BlockState::retired) return false;
    charged_.fetch_sub(block.nbytes, std::memory_order_relaxed);
    return true;
  });
  return reaped;
}

Status LimitingResourceAdaptor::promise(std::uint64_t nbytes) {
  if (nbytes == 0) return Status::fail(Code::invalid_size, "a promise of nothing", nbytes);
  TM_TRY(charge(nbytes));
  promised_.fetch_add(nbytes, std::memory_order_relaxed);
  return {};
}

void LimitingResourceAdaptor::withdraw_promise(std::uint64_t nbytes) {
  std::uint64_t promised = promised_.load(std::memory_order_relaxed);
  std::uint64_t withdrawn = 0;
  do {
    withdrawn = std::min(nbytes, promised);
  } while (!promised_.compare_exchange_weak(promised, promised - withdrawn, std::memory_order_relaxed));
  charged_.fetch_sub(withdrawn, std::memory_order_relaxed);
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

Status LimitingResourceAdaptor::charge(std::uint64_t nbytes) {
  std::uint64_t current = 0;
  std::uint64_t limit = 0;
  if (try_charge(nbytes, &current, &limit)) [[likely]]
    return {};
  if (nbytes <= limit) {
    // What cannot be reaped stays charged, and the refusal below says how much that is.
    (void)reap_pending().ok();
    if (try_charge(nbytes, &current, &limit)) return {};
  }
  const std::uint64_t remaining = current < limit ? limit - current : 0;
  return Status::fail(Code::out_of_budget, "the budget has no room for it", nbytes, current, remaining, limit);
}

bool LimitingResourceAdaptor::try_charge(std::uint64_t nbytes, std::uint64_t* current, std::uint64_t* limit) {
  *current = charged_.load(std::memory_order_relaxed);
  *limit = limit_.load(std::memory_order_relaxed);
  do {
    if (*current > *limit || nbytes > *limit - *current) return false;
  } while (!charged_.compare_exchange_weak(*current, *current + nbytes, std::memory_order_relaxed));
  return true;
}

}  // namespace tensormem

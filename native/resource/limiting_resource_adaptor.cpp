#include "resource/limiting_resource_adaptor.hpp"

namespace tensormem {

Status LimitingResourceAdaptor::allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  TM_TRY(charge(request.nbytes));
  Status allocated = upstream().allocate(request, block);
  if (!allocated.ok()) [[unlikely]]
    charged_.fetch_sub(request.nbytes, std::memory_order_relaxed);
  return allocated;
}

Status LimitingResourceAdaptor::deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(upstream().deallocate(block, stream, end));
  if (*end == BlockState::freed) [[likely]] {
    charged_.fetch_sub(block.nbytes, std::memory_order_relaxed);
    return {};
  }
  const std::lock_guard lock(mutex_);
  retired_.push_back(block);
  return {};
}

Status LimitingResourceAdaptor::reap_pending() {
  Status reaped = upstream().reap_pending();
  const std::lock_guard lock(mutex_);
  std::erase_if(retired_, [this](const Block& block) {
    if (upstream().state_of(block) != BlockState::freed) return false;
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
  promised_.fetch_sub(nbytes, std::memory_order_relaxed);
  charged_.fetch_sub(nbytes, std::memory_order_relaxed);
}

Status LimitingResourceAdaptor::allocate_promised(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  TM_TRY(upstream().allocate(request, block));
  promised_.fetch_sub(request.nbytes, std::memory_order_relaxed);
  return {};
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

// Owns: a place in the stack for an adaptor that is written in another language: what it overrides is called, the rest
// is forwarded to the upstream. Must not know: which language. The hooks are called without any lock of ours.
#pragma once

#include <functional>
#include <utility>

#include "resource/resource_adaptor.hpp"

namespace tensormem {

// An empty one is not overridden.
struct ResourceHooks {
  std::function<Status(const AllocRequest& request, Block* block)> allocate;
  std::function<Status(const Block& block, StreamId stream)> deallocate;
  std::function<Status()> reap_pending;
};

class ForeignResourceAdaptor final : public ResourceAdaptor {
 public:
  ForeignResourceAdaptor(ResourcePtr upstream, ResourceHooks hooks)
      : ResourceAdaptor(std::move(upstream)), hooks_(std::move(hooks)) {}

  Status do_allocate(const AllocRequest& request, Block* block) override {
    return hooks_.allocate ? hooks_.allocate(request, block) : upstream().allocate(request, block);
  }
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override {
    if (!hooks_.deallocate) return upstream().deallocate(block, stream, end);
    Status deallocated = hooks_.deallocate(block, stream);
    if (is_taken_back(deallocated)) *end = state_of(block);
    return deallocated;
  }
  Status reap_pending() override { return hooks_.reap_pending ? hooks_.reap_pending() : upstream().reap_pending(); }

 private:
  const ResourceHooks hooks_;
};

}  // namespace tensormem

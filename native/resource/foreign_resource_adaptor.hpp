// Owns: a place in the stack for an adaptor that is written in another language: what it overrides is called, the rest
// is forwarded to the upstream. Must not know: which language. The hooks are called without any lock of ours.
#pragma once

#include <functional>
#include <utility>

#include "resource/resource_adaptor.hpp"

namespace tensormem {

struct ResourceHooks {
  std::function<Status(const AllocRequest& request, Block* block)> allocate;
  std::function<Status(const Block& block, StreamId stream)> deallocate;
  std::function<Status()> reap_pending;
};

class ForeignResourceAdaptor final : public ResourceAdaptor {
 public:
  ForeignResourceAdaptor(ResourcePtr upstream, ResourceHooks hooks)
      : ResourceAdaptor(std::move(upstream)), hooks_(std::move(hooks)) {}

  Status allocate(const AllocRequest& request, Block* block) override { return hooks_.allocate(request, block); }
  Status deallocate(const Block& block, StreamId stream, BlockState* end) override {
    TM_TRY(hooks_.deallocate(block, stream));
    *end = state_of(block);
    return {};
  }
  Status reap_pending() override { return hooks_.reap_pending(); }

 private:
  const ResourceHooks hooks_;
};

}  // namespace tensormem

// Owns: what every adaptor is: a resource that wraps one upstream, owns a share of it, and forwards what it does not
// change. Blocks pass through unchanged: the generation is the one their maker gave them.
// Must not know: what is above or below.
#pragma once

#include <utility>

#include "resource/resource.hpp"

namespace tensormem {

class ResourceAdaptor : public Resource {
 public:
  explicit ResourceAdaptor(ResourcePtr upstream) : Resource(upstream.get()), upstream_(std::move(upstream)) {}

  Status do_allocate(const AllocRequest& request, Block* block) override { return upstream_->allocate(request, block); }
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override {
    return upstream_->deallocate(block, stream, end);
  }
  std::uint64_t bytes_outstanding() const override { return upstream_->bytes_outstanding(); }
  Stats stats() const override { return upstream_->stats(); }
  BlockState state_of(const Block& block) const override { return upstream_->state_of(block); }
  Status reap_pending() override { return upstream_->reap_pending(); }
  bool is_valid() const override { return upstream_->is_valid(); }

  bool is_stream_ordered() const override { return upstream_->is_stream_ordered(); }
  bool supports_block_use_tracking() const override { return upstream_->supports_block_use_tracking(); }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override {
    return upstream_->prepare_block_use(block, stream, access);
  }
  Status finish_block_use(const Block& block, StreamId stream, Access access) override {
    return upstream_->finish_block_use(block, stream, access);
  }

  Resource& upstream() const { return *upstream_; }

 protected:
  // Whether the upstream has taken a block back: a report of damage does not keep it from that.
  static bool is_taken_back(const Status& deallocated) {
    return deallocated.ok() || deallocated.code() == Code::out_of_bounds;
  }

 private:
  const ResourcePtr upstream_;
};

}  // namespace tensormem

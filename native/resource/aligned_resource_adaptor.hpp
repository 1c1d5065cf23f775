// Owns: a floor under alignments: blocks of at least `threshold` bytes get at least `alignment`.
// Must not know: how the upstream aligns.
#pragma once

#include <algorithm>

#include "resource/resource_adaptor.hpp"

namespace tensormem {

class AlignedResourceAdaptor final : public ResourceAdaptor {
 public:
  AlignedResourceAdaptor(ResourcePtr upstream, std::uint64_t alignment, std::uint64_t threshold)
      : ResourceAdaptor(std::move(upstream)), alignment_(alignment), threshold_(threshold) {}

  Status do_allocate(const AllocRequest& request, Block* block) override {
    TM_TRY(check_request(request));
    AllocRequest aligned = request;
    if (request.nbytes >= threshold_) aligned.alignment = std::max(request.alignment, alignment_);
    return upstream().allocate(aligned, block);
  }

 private:
  const std::uint64_t alignment_;
  const std::uint64_t threshold_;
};

}  // namespace tensormem

// Owns: planned refusals, to see what callers do with them. A call fails when every given condition holds; what fails
// is `out_of_memory` with the facts of the request, and the upstream is not touched. Deterministic: the same plan and
// the same calls fail the same way, in whatever order threads run.
#pragma once

#include <atomic>

#include "resource/resource_adaptor.hpp"

namespace tensormem {

struct FaultInjectionPlan {
  std::uint64_t nth = 0;    // only the n-th allocation that the other conditions let through; 0: any
  std::uint64_t every = 0;  // each n-th of them; 0: any
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = ~0ULL;
  bool only_tag = false;
  TagId tag = kUntagged;
  double probability = 1.0;
  std::uint64_t seed = 0;
};

class FaultInjectionResourceAdaptor final : public ResourceAdaptor {
 public:
  FaultInjectionResourceAdaptor(ResourcePtr upstream, const FaultInjectionPlan& plan)
      : ResourceAdaptor(std::move(upstream)), plan_(plan) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;

  std::uint64_t matching_calls() const { return matching_.load(std::memory_order_relaxed); }
  std::uint64_t injected_faults() const { return injected_.load(std::memory_order_relaxed); }

 private:
  bool must_fail(const AllocRequest& request);

  const FaultInjectionPlan plan_;
  std::atomic<std::uint64_t> matching_{0};
  std::atomic<std::uint64_t> injected_{0};
};

}  // namespace tensormem

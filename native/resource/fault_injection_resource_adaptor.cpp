#include "resource/fault_injection_resource_adaptor.hpp"

namespace tensormem {

namespace {

// A number in [0, 1) that depends on nothing but its arguments (the finalizer of splitmix64).
double chance(std::uint64_t seed, std::uint64_t call) {
  std::uint64_t x = seed + call * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

}  // namespace

Status FaultInjectionResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  if (!must_fail(request)) return upstream().allocate(request, block);
  injected_.fetch_add(1, std::memory_order_relaxed);
  return Status::fail(Code::out_of_memory, "a planned fault", request.nbytes);
}

bool FaultInjectionResourceAdaptor::must_fail(const AllocRequest& request) {
  if (request.nbytes < plan_.min_bytes || request.nbytes > plan_.max_bytes) return false;
  if (plan_.only_tag && request.tag != plan_.tag) return false;
  const std::uint64_t call = matching_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (plan_.nth != 0 && call != plan_.nth) return false;
  if (plan_.every != 0 && call % plan_.every != 0) return false;
  return plan_.probability >= 1.0 || chance(plan_.seed, call) < plan_.probability;
}

}  // namespace tensormem

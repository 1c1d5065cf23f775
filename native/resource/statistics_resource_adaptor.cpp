#include "resource/statistics_resource_adaptor.hpp"

#include <algorithm>
#include <mutex>

namespace tensormem {

Status StatisticsResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(upstream().allocate(request, block));
  const auto nbytes = static_cast<std::int64_t>(request.nbytes);
  const std::lock_guard lock(lock_);
  ScopeCounters& top = scopes_.back();
  top.current_bytes += nbytes;
  top.current_count += 1;
  top.peak_bytes = std::max(top.peak_bytes, top.current_bytes);
  top.peak_count = std::max(top.peak_count, top.current_count);
  top.total_bytes += nbytes;
  top.total_count += 1;
  return {};
}

Status StatisticsResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  Status deallocated = upstream().deallocate(block, stream, end);
  if (!is_taken_back(deallocated)) return deallocated;
  const std::lock_guard lock(lock_);
  ScopeCounters& top = scopes_.back();
  top.current_bytes -= static_cast<std::int64_t>(block.nbytes);
  top.current_count -= 1;
  return deallocated;
}

ScopeCounters StatisticsResourceAdaptor::counters() const {
  const std::lock_guard lock(lock_);
  return scopes_.back();
}

ScopeCounters StatisticsResourceAdaptor::push() {
  const std::lock_guard lock(lock_);
  const ScopeCounters before = scopes_.back();
  scopes_.emplace_back();
  return before;
}

Status StatisticsResourceAdaptor::pop(ScopeCounters* ended) {
  const std::lock_guard lock(lock_);
  if (scopes_.size() == 1) return Status::fail(Code::invalid_argument, "pop without push: no counters were pushed");
  const ScopeCounters inner = scopes_.back();
  scopes_.pop_back();
  ScopeCounters& outer = scopes_.back();
  outer.peak_bytes = std::max(outer.peak_bytes, outer.current_bytes + inner.peak_bytes);
  outer.peak_count = std::max(outer.peak_count, outer.current_count + inner.peak_count);
  outer.current_bytes += inner.current_bytes;
  outer.current_count += inner.current_count;
  outer.total_bytes += inner.total_bytes;
  outer.total_count += inner.total_count;
  *ended = inner;
  return {};
}

bool StatisticsResourceAdaptor::is_valid() const {
  {
    const std::lock_guard lock(lock_);
    if (scopes_.empty()) return false;
    for (const ScopeCounters& scope : scopes_) {
      if (scope.current_bytes > scope.peak_bytes || scope.current_count > scope.peak_count) return false;
    }
  }
  return ResourceAdaptor::is_valid();
}

}  // namespace tensormem

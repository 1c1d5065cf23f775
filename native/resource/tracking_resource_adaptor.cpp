#include "resource/tracking_resource_adaptor.hpp"

#include <algorithm>
#include <new>

#include "base/invariant.hpp"
#include "resource/wall_clock.hpp"

namespace tensormem {

Status TrackingResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  Block fresh;
  TM_TRY(upstream().allocate(request, &fresh));
  Status remembered = remember({fresh, wall_clock_ns(), capture_stack(hooks_)});
  if (!remembered.ok()) [[unlikely]] {
    // A block that its own upstream does not take back stays counted there; the first failure is the one to tell.
    BlockState end{};
    (void)upstream().deallocate(fresh, request.stream, &end).ok();
    return remembered;
  }
  *block = fresh;
  return {};
}

Status TrackingResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  Status deallocated = upstream().deallocate(block, stream, end);
  if (!is_taken_back(deallocated)) return deallocated;
  decltype(blocks_)::node_type forgotten;  // ends after the lock: its stack is dropped by a hook
  const std::lock_guard lock(mutex_);
  forgotten = blocks_.extract(block.generation);
  if (!forgotten.empty()) [[likely]]
    bytes_ -= forgotten.mapped().block.nbytes;
  return deallocated;
}

Status TrackingResourceAdaptor::remember(TrackedBlock tracked) {
  const std::uint64_t nbytes = tracked.block.nbytes;
  const std::uint64_t generation = tracked.block.generation;
  try {
    const std::lock_guard lock(mutex_);
    const bool is_new = blocks_.try_emplace(generation, std::move(tracked)).second;
    TM_ASSERT(is_new);
    if (is_new) bytes_ += nbytes;
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory to track one more block", nbytes);
  }
  return {};
}

std::uint64_t TrackingResourceAdaptor::outstanding_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::uint64_t TrackingResourceAdaptor::outstanding_count() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

void TrackingResourceAdaptor::outstanding(TrackedOrder order, std::vector<TrackedBlock>* blocks) const {
  blocks->clear();  // drops stacks: before the lock
  {
    const std::lock_guard lock(mutex_);
    blocks->reserve(blocks_.size());
    for (const auto& [generation, tracked] : blocks_) blocks->push_back(tracked);
  }
  std::ranges::sort(*blocks, [order](const TrackedBlock& a, const TrackedBlock& b) {
    if (order == TrackedOrder::largest_first && a.block.nbytes != b.block.nbytes)
      return a.block.nbytes > b.block.nbytes;
    if (order == TrackedOrder::oldest_first && a.timestamp_ns != b.timestamp_ns) return a.timestamp_ns < b.timestamp_ns;
    return a.block.generation < b.block.generation;
  });
}

void TrackingResourceAdaptor::totals_by_tag(std::vector<TagTotal>* totals) const {
  std::unordered_map<TagId, TagTotal> by_tag;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [generation, tracked] : blocks_) {
      TagTotal& total = by_tag[tracked.block.tag];
      total.nbytes += tracked.block.nbytes;
      total.count += 1;
    }
  }
  totals->clear();
  for (auto& [tag, total] : by_tag) totals->push_back({tag, total.nbytes, total.count});
  std::ranges::sort(*totals, [](const TagTotal& a, const TagTotal& b) {
    return a.nbytes != b.nbytes ? a.nbytes > b.nbytes : a.tag < b.tag;
  });
}

bool TrackingResourceAdaptor::is_valid() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [generation, tracked] : blocks_) {
    if (tracked.block.generation != generation) return false;
    bytes += tracked.block.nbytes;
  }
  return bytes == bytes_;
}

}  // namespace tensormem

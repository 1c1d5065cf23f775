#include "resource/planned_memory_resource.hpp"

#include <algorithm>
#include <utility>

#include "base/align.hpp"
#include "trace/inside.hpp"

namespace tensormem {

namespace {

// How far ahead an allocation is looked for when it is not the planned one: some allocations may have been left out.
constexpr std::size_t kLookAhead = 16;

}  // namespace

Status PlannedMemoryResource::create(ResourcePtr upstream, std::vector<PlannedBlock> plan, std::uint64_t height,
                                     std::uint64_t alignment, std::shared_ptr<PlannedMemoryResource>* out) {
  for (const PlannedBlock& block : plan) {
    if (block.nbytes == 0 || block.nbytes > height || block.offset > height - block.nbytes)
      return Status::fail(Code::invalid_offset, "a planned block lies outside the plan", block.offset, block.nbytes,
                          height);
  }
  std::shared_ptr<PlannedMemoryResource> made(new PlannedMemoryResource(std::move(upstream), std::move(plan)));
  if (height != 0) {
    AllocRequest request{.nbytes = height, .alignment = std::max<std::uint64_t>(alignment, 256)};
    const TraceInside inside;
    TM_TRY(made->upstream_->allocate(request, &made->arena_));
    made->has_arena_ = true;
    // Blocks of it are used on any stream, so it has to be there for all of them.
    if (made->upstream_->is_stream_ordered()) TM_TRY(made->driver().stream_synchronize(kDefaultStream));
  }
  *out = std::move(made);
  return {};
}

PlannedMemoryResource::PlannedMemoryResource(ResourcePtr upstream, std::vector<PlannedBlock> plan)
    : LeafMemoryResource(upstream.get()), upstream_(std::move(upstream)), plan_(std::move(plan)) {}

PlannedMemoryResource::~PlannedMemoryResource() {
  finish();
  for (const Block& block : owed_) (void)give_to_upstream(block).ok();
  const TraceInside inside;
  BlockState end;
  // A place that could not be given back may still be used by a stream: then all of it is kept.
  if (has_arena_ && taken_.empty()) (void)upstream_->deallocate(arena_, kDefaultStream, &end).ok();
}

void PlannedMemoryResource::new_step() {
  const std::lock_guard lock(plan_mutex_);
  next_ = 0;
}

PlannedUsage PlannedMemoryResource::usage() const {
  const std::lock_guard lock(plan_mutex_);
  PlannedUsage usage = usage_;
  usage.position = next_;
  return usage;
}

Status PlannedMemoryResource::take(const AllocRequest& request, std::uint64_t* address) {
  {
    const std::lock_guard lock(plan_mutex_);
    if (take_planned(request, address)) {
      ++usage_.planned;
      return {};
    }
  }
  return take_from_upstream(request, address);
}

bool PlannedMemoryResource::take_planned(const AllocRequest& request, std::uint64_t* address) {
  std::size_t found = 0;
  if (!find_in_plan(request.nbytes, &found)) return false;
  next_ = found + 1;
  const std::uint64_t offset = plan_[found].offset;
  const std::uint64_t end = offset + request.nbytes;
  if (!is_aligned(arena_.address + offset, request.alignment) || !is_free(offset, end)) return false;
  taken_.emplace(offset, end);
  *address = arena_.address + offset;
  return true;
}

// The next one, or one a little later; what is in none of them is one too many, and the plan waits.
bool PlannedMemoryResource::find_in_plan(std::uint64_t nbytes, std::size_t* found) const {
  const std::size_t end = std::min(plan_.size(), next_ + kLookAhead);
  for (std::size_t i = next_; i < end; ++i) {
    if (plan_[i].nbytes != nbytes) continue;
    *found = i;
    return true;
  }
  return false;
}

bool PlannedMemoryResource::is_free(std::uint64_t offset, std::uint64_t end) const {
  const auto above = taken_.lower_bound(offset);
  if (above != taken_.end() && above->first < end) return false;
  return above == taken_.begin() || std::prev(above)->second <= offset;
}

Status PlannedMemoryResource::take_from_upstream(const AllocRequest& request, std::uint64_t* address) {
  Block block;
  TM_TRY(upstream_->allocate(request, &block));
  const std::lock_guard lock(plan_mutex_);
  fallbacks_.emplace(block.address, block);
  ++usage_.fallbacks;
  *address = block.address;
  return {};
}

Status PlannedMemoryResource::give_back(const BlockEntry& entry) {
  Block block;
  {
    const std::lock_guard lock(plan_mutex_);
    const auto found = fallbacks_.find(entry.address);
    if (found == fallbacks_.end()) {
      taken_.erase(entry.address - arena_.address);
      return {};
    }
    block = found->second;
    fallbacks_.erase(found);
  }
  // What the upstream refuses is ours to bring again; whoever gave it back is done with it.
  if (!give_to_upstream(block).ok()) {
    const std::lock_guard lock(plan_mutex_);
    owed_.push_back(block);
  }
  return {};
}

// Its uses are over. A stream that is gone by now has nothing left to wait for.
Status PlannedMemoryResource::give_to_upstream(const Block& block) {
  const StreamId stream = driver().stream_is_valid(block.stream) ? block.stream : kDefaultStream;
  BlockState end;
  const TraceInside inside;
  return upstream_->deallocate(block, stream, &end);
}

Status PlannedMemoryResource::reap_pending() {
  Status first_failure = LeafMemoryResource::reap_pending();
  std::vector<Block> owed;
  {
    const std::lock_guard lock(plan_mutex_);
    owed.swap(owed_);
  }
  for (const Block& block : owed) {
    Status given = give_to_upstream(block);
    if (given.ok()) continue;
    if (first_failure.ok()) first_failure = std::move(given);
    const std::lock_guard lock(plan_mutex_);
    owed_.push_back(block);
  }
  Status reaped = upstream_->reap_pending();
  return first_failure.ok() ? std::move(reaped) : std::move(first_failure);
}

bool PlannedMemoryResource::find_fallback(std::uint64_t address, Block* block) const {
  const std::lock_guard lock(plan_mutex_);
  const auto found = fallbacks_.find(address);
  if (found == fallbacks_.end()) return false;
  *block = found->second;
  return true;
}

// A block of the upstream exists as the upstream says: it is asked too.
Status PlannedMemoryResource::prepare_block_use(const Block& block, StreamId stream, Access access) {
  if (!supports_block_use_tracking()) return Resource::prepare_block_use(block, stream, access);
  TM_TRY(LeafMemoryResource::prepare_block_use(block, stream, access));
  Block below;
  return find_fallback(block.address, &below) ? upstream_->prepare_block_use(below, stream, access) : Status();
}

Status PlannedMemoryResource::finish_block_use(const Block& block, StreamId stream, Access access) {
  if (!supports_block_use_tracking()) return Resource::finish_block_use(block, stream, access);
  TM_TRY(LeafMemoryResource::finish_block_use(block, stream, access));
  Block below;
  return find_fallback(block.address, &below) ? upstream_->finish_block_use(below, stream, access) : Status();
}

// Places in use lie apart, and below the height.
bool PlannedMemoryResource::is_valid() const {
  {
    const std::lock_guard lock(plan_mutex_);
    std::uint64_t free_from = 0;
    for (const auto& [offset, end] : taken_) {
      if (offset < free_from || end <= offset || end > arena_.nbytes) return false;
      free_from = end;
    }
    if (next_ > plan_.size()) return false;
    for (const auto& [address, block] : fallbacks_) {
      if (block.address != address) return false;
    }
  }
  return LeafMemoryResource::is_valid();
}

}  // namespace tensormem

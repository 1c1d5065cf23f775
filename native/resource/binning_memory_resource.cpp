#include "resource/binning_memory_resource.hpp"

#include <algorithm>

namespace tensormem {

Status BinningMemoryResource::add_bin(std::uint64_t largest, ResourcePtr resource) {
  const std::lock_guard lock(lock_);
  if (largest == 0) return Status::fail(Code::invalid_size, "a bin holds at least one byte", largest);
  if (stats_.current_count + asking_ != 0)
    return Status::fail(Code::invalid_argument, "bins are added before the first block is out");
  const auto place = std::ranges::lower_bound(bins_, largest, {}, [](const Bin& bin) { return bin.largest; });
  if (place != bins_.end() && place->largest == largest)
    return Status::fail(Code::invalid_size, "there is a bin of this size already", largest);
  bins_.insert(place, Bin{largest, std::move(resource)});
  return {};
}

std::vector<std::uint64_t> BinningMemoryResource::bin_sizes() const {
  const std::lock_guard lock(lock_);
  std::vector<std::uint64_t> sizes;
  for (const Bin& bin : bins_) sizes.push_back(bin.largest);
  return sizes;
}

Status BinningMemoryResource::do_allocate(const AllocRequest& request, Block* block) {
  TM_TRY(check_request(request));
  {
    const std::lock_guard lock(lock_);
    ++asking_;  // from here on the bins stay as they are
  }
  Status allocated = home_of(request.nbytes).allocate(request, block);
  const std::lock_guard lock(lock_);
  --asking_;
  if (allocated.ok()) [[likely]]
    stats_.on_allocate(request.nbytes);
  return allocated;
}

Status BinningMemoryResource::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  TM_TRY(home_of(block.nbytes).deallocate(block, stream, end));
  const std::lock_guard lock(lock_);
  if (*end == BlockState::freed) [[likely]] {
    stats_.on_free(block.nbytes);
  } else {
    stats_.on_retire(block.nbytes);
    retired_.push_back(block);
  }
  return {};
}

Stats BinningMemoryResource::stats() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

Status BinningMemoryResource::reap_pending() {
  Status first_failure = upstream().reap_pending();
  for (const Bin& bin : bins_) {
    Status reaped = bin.resource->reap_pending();
    if (!reaped.ok() && first_failure.ok()) first_failure = std::move(reaped);
  }
  const std::lock_guard lock(lock_);
  std::erase_if(retired_, [this](const Block& block) {
    if (home_of(block.nbytes).state_of(block) != BlockState::freed) return false;
    stats_.on_reap(block.nbytes);
    return true;
  });
  return first_failure;
}

bool BinningMemoryResource::supports_block_use_tracking() const {
  return upstream().supports_block_use_tracking() &&
         std::ranges::all_of(bins_, [](const Bin& bin) { return bin.resource->supports_block_use_tracking(); });
}

Resource& BinningMemoryResource::home_of(std::uint64_t nbytes) const {
  for (const Bin& bin : bins_) {
    if (nbytes <= bin.largest) return *bin.resource;
  }
  return upstream();
}

// Bins are by size, each once.
bool BinningMemoryResource::is_valid() const {
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    if (i != 0 && bins_[i].largest <= bins_[i - 1].largest) return false;
    if (!bins_[i].resource->is_valid()) return false;
  }
  return ResourceAdaptor::is_valid();
}

}  // namespace tensormem

// Owns: blocks that one call on block tables took from the cache and has not put into a sequence; they go back at its
// end. Must not know: what the call does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pool/block_tables.hpp"

namespace tensormem {

// Declare it before the lock.
class BlockTables::Spares {
 public:
  explicit Spares(BlockCache& cache) : cache_(cache) {}
  ~Spares() {
    if (!ids_.empty()) (void)cache_.free(ids_.data(), ids_.size(), kDefaultStream).ok();
  }
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;

  std::uint64_t size() const noexcept { return ids_.size(); }
  // The ones that are popped next, the last first.
  const CacheBlockId* last(std::size_t count) const noexcept { return ids_.data() + (ids_.size() - count); }
  CacheBlockId pop() noexcept {
    const CacheBlockId id = ids_.back();
    ids_.pop_back();
    return id;
  }
  // As many as that in all, or as before. Hold no lock.
  Status take_up_to(std::uint64_t wanted, TagId tag) noexcept try {
    const std::size_t before = ids_.size();
    if (wanted <= before) return {};
    if (wanted > cache_.capacity_blocks()) {
      return Status::fail(Code::out_of_virtual_memory, "more blocks than the cache has addresses for",
                          wanted * cache_.block_bytes() * cache_.planes());
    }
    ids_.resize(wanted);
    Status status = cache_.allocate(wanted - before, tag, ids_.data() + before);
    if (!status.ok()) ids_.resize(before);
    std::reverse(ids_.begin() + static_cast<std::ptrdiff_t>(before), ids_.end());  // the lowest slots are popped first
    return status;
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory for the books of block tables", wanted * sizeof(CacheBlockId));
  }

 private:
  BlockCache& cache_;
  std::vector<CacheBlockId> ids_;
};

}  // namespace tensormem

// Owns: what one call on a block cache carries with it: pages that stand behind no address, and marks on rows of ids.
// Both end with the call. Must not know: what the call does.
#pragma once

#include <cstdint>
#include <vector>

#include "pool/block_cache.hpp"

namespace tensormem {

// Declare it before the lock: pages go to the cache, or back, when the lock is gone.
class BlockCache::LoosePages {
 public:
  explicit LoosePages(ElasticPages& pages) : pages_(pages) {}
  ~LoosePages() { give_back(); }
  LoosePages(const LoosePages&) = delete;
  LoosePages& operator=(const LoosePages&) = delete;

  std::uint64_t size() const noexcept { return loose_.size() - used_; }
  std::vector<Page>& list() noexcept { return loose_; }
  // The first ones are mapped first, so that each comes to its home where it can.
  const Page* first() const noexcept { return loose_.data() + used_; }
  void used(std::uint64_t count) noexcept { used_ += count; }
  // As many pages as there are homes, those at hand counted. Hold no lock. Throws bad_alloc.
  Status take_up_to(std::vector<std::uint64_t> homes) {
    forget_used();
    homes.erase(homes.begin(), homes.begin() + static_cast<std::ptrdiff_t>(loose_.size()));
    std::vector<Page> more;
    loose_.reserve(loose_.size() + homes.size());
    TM_TRY(pages_.cache().take(homes, &more));
    loose_.insert(loose_.end(), more.begin(), more.end());
    return {};
  }
  void give_back() noexcept {
    forget_used();
    if (loose_.empty()) return;
    pages_.cache().put_back(loose_);
    loose_.clear();
  }

 private:
  void forget_used() noexcept {
    loose_.erase(loose_.begin(), loose_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
  }

  ElasticPages& pages_;
  std::vector<Page> loose_;
  std::uint64_t used_ = 0;
};

}  // namespace tensormem

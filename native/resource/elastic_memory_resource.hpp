// Owns: a general allocator over pages: blocks of any size in a range of addresses far larger than the memory, of which
// only the pages in use are held. A block larger than any run of free pages gets them all the same: they are put behind
// addresses that run. Pages that nothing lies in any more stay where they are, idle, for the next block there; they are
// taken first when pages are wanted elsewhere, and go back above the release threshold, or by `trim`.
// Must not know: streams and uses (the leaf tracks them: memory comes back here when its streams have passed).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "alloc/offset_allocator.hpp"
#include "base/fork_guard.hpp"
#include "base/lazy_array.hpp"
#include "base/mutex.hpp"
#include "pool/elastic_pages.hpp"
#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

struct ElasticOptions {
  static constexpr std::uint64_t kWidest = ~0ULL;

  std::uint64_t capacity = kWidest;  // addresses, rounded up to a page; kWidest: as many as suit device and system
  std::uint64_t page_bytes = 2ULL << 20;
  std::uint64_t release_threshold = 256ULL << 20;  // bytes of pages that nothing lies in, kept for the next block
};

struct ElasticUsage {
  std::uint64_t physical_bytes = 0;  // all pages held
  std::uint64_t peak_physical_bytes = 0;
  std::uint64_t used_page_bytes = 0;  // pages that something lies in
  std::uint64_t idle_bytes = 0;       // the others
  std::uint64_t total_free = 0;       // addresses
  std::uint64_t largest_free = 0;
};

class ElasticMemoryResource final : public LeafMemoryResource, public BudgetMember {
 public:
  static Status create(Driver& driver, std::int32_t device, const ElasticOptions& options, BudgetPtr budget,
                       std::shared_ptr<ElasticMemoryResource>* out);
  ~ElasticMemoryResource() override;

  std::uint64_t page_bytes() const { return pages_->page_bytes(); }
  std::uint64_t capacity() const { return pages_->page_count() * pages_->page_bytes(); }
  ElasticUsage usage() const;
  // Gives idle pages back until at most `keep_bytes` of them are left; says how many bytes went.
  Status trim(std::uint64_t keep_bytes, std::uint64_t* released);
  // Pages that nothing lies in.
  std::uint64_t release_idle(std::uint64_t wanted) noexcept override;
  bool pages_are_valid() const;
  bool is_valid() const override { return LeafMemoryResource::is_valid() && pages_are_valid(); }

 private:
  struct Span {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };

  ElasticMemoryResource(Driver& driver, std::int32_t device, const ElasticOptions& options,
                        std::unique_ptr<ElasticPages> pages);
  Status take(const AllocRequest& request, std::uint64_t* address) override;
  Status give_back(const BlockEntry& entry) override;

  Status refusal(std::uint64_t nbytes, std::uint64_t loose_pages, const Status& lacking) const;
  Span span_of(std::uint64_t offset, std::uint64_t size) const;
  // With the lock.
  Status try_take(const AllocRequest& request, std::vector<Page>* loose, std::vector<std::uint64_t>* missing,
                  std::uint64_t* address);
  Status map_missing(const std::vector<std::uint64_t>& missing, std::vector<Page>* loose);
  Status steal_idle(const Span& except, std::uint64_t count, std::vector<Page>* loose);
  std::vector<Page> take_surplus(std::uint64_t keep_pages, Status* failure);
  void use(const Span& span);
  void leave(const Span& span);

  const std::unique_ptr<ElasticPages> pages_;
  const std::uint64_t keep_pages_;
  mutable Mutex pages_mutex_;  // guards everything below
  ForkGuard pages_fork_guard_{pages_mutex_};
  OffsetAllocator space_;
  LazyArray<std::uint32_t> references_;
  PageBitmap idle_;                                         // mapped, and nothing lies in them
  std::unordered_map<std::uint64_t, std::uint32_t> nodes_;  // by offset
  std::uint64_t peak_pages_ = 0;
  BudgetMembership membership_;  // the youngest: asked only while all of the above is there
};

}  // namespace tensormem

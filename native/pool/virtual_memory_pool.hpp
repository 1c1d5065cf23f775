// Owns: an elastic pool: a large range of addresses of which only the pages in use have memory. Places are named by the
// caller (whole pages), or found here (blocks of any size; small ones share pages). A page is mapped while anything
// that is not suspended lies in it, and goes to the cache, or back, when the last of it is gone and the streams that
// used it have passed. Every call does all that it says, or nothing.
// Must not know: Python; how callers learn that a block moved (it tells them what moved).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "alloc/extent_map.hpp"
#include "base/fork_guard.hpp"
#include "base/interned.hpp"
#include "base/lazy_array.hpp"
#include "base/mutex.hpp"
#include "order/retired_list.hpp"
#include "pool/elastic_pages.hpp"

namespace tensormem {

struct VirtualPoolOptions {
  std::uint64_t capacity = 0;  // rounded up to a page
  std::uint64_t page_bytes = 2ULL << 20;
  std::int32_t device = 0;
  PageCacheOptions cache;
};

using PoolBlockId = std::uint64_t;  // never used again

struct PoolBlock {
  PoolBlockId id = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t extent = 0;     // the addresses that are its: the size, rounded up
  std::uint64_t alignment = 1;  // what the caller asked for; the place may have a larger one
  TagId tag = kUntagged;
  bool is_named = false;  // the caller named the place, whole pages
  bool movable = false;
  bool suspended = false;
  bool is_dropped = false;       // goes back when the last hold does
  std::uint32_t holds = 0;       // who asked that it stay where it is
  std::uint64_t suspension = 0;  // the number that its last suspension was given
  std::uint64_t generation = 1;  // changes when it moved or came back from a suspension
  Uses uses;                     // one a stream
};

struct VirtualPoolStats {
  std::uint64_t capacity = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t mapped_pages = 0;
  std::uint64_t cached_pages = 0;
  std::uint64_t physical_bytes = 0;  // mapped and cached
  std::uint64_t peak_physical_bytes = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t live_blocks = 0;
  std::uint64_t retired_bytes = 0;  // given back, and waiting for streams
  std::uint64_t suspended_bytes = 0;
  std::uint64_t total_free = 0;  // addresses
  std::uint64_t largest_free = 0;
  std::uint64_t created_pages = 0;
  std::uint64_t recycled_pages = 0;
};

struct CompactionLimits {
  std::uint64_t max_bytes = ~0ULL;
  double max_seconds = 1e30;
};

struct BlockMove {
  PoolBlockId id = 0;
  std::uint64_t old_offset = 0;
  std::uint64_t new_offset = 0;
};

struct CompactionReport {
  std::uint64_t remapped_pages = 0;
  std::uint64_t copied_bytes = 0;
  std::uint64_t released_pages = 0;
  double seconds = 0;
  bool finished = false;
  std::vector<BlockMove> moves;
};

class VirtualMemoryPool final : public BudgetMember {
 public:
  static Status open(Driver& driver, const VirtualPoolOptions& options, BudgetPtr budget,
                     std::shared_ptr<VirtualMemoryPool>* pool) noexcept;
  ~VirtualMemoryPool() override;
  VirtualMemoryPool(const VirtualMemoryPool&) = delete;
  VirtualMemoryPool& operator=(const VirtualMemoryPool&) = delete;

  Driver& driver() const noexcept { return driver_; }
  std::int32_t device() const noexcept { return device_; }
  std::uint64_t base() const noexcept { return pages_->base(); }
  std::uint64_t capacity() const noexcept { return pages_->page_count() * pages_->page_bytes(); }
  std::uint64_t page_bytes() const noexcept { return pages_->page_bytes(); }
  const BudgetPtr& budget() const noexcept { return budget_; }
  PageCache& cache() noexcept { return pages_->cache(); }

  // Whole pages: the floor of the start, the ceiling of the end.
  Status allocate_at(std::uint64_t offset, std::uint64_t size, TagId tag) noexcept;
  Status deallocate_at(std::uint64_t offset, std::uint64_t size, StreamId stream) noexcept;
  bool is_mapped(std::uint64_t offset, std::uint64_t size) const noexcept;
  // Blocks of a page and more begin on a page, until they are compacted.
  Status allocate(std::uint64_t size, std::uint64_t alignment, bool movable, TagId tag, PoolBlockId* id) noexcept;
  Status deallocate(PoolBlockId id, StreamId stream) noexcept;
  // The same for an owner that is no more and cannot be told: at once, or as soon as it can be.
  void drop(PoolBlockId id) noexcept;
  // In place where there is room; a movable block may move, with its contents.
  Status resize(PoolBlockId id, std::uint64_t size) noexcept;
  Status find(PoolBlockId id, PoolBlock* block) const noexcept;
  // While held, a block stays where it is.
  Status hold(PoolBlockId id, std::uint64_t* offset) noexcept;
  Status let_go(PoolBlockId id) noexcept;

  // Work queued on `stream` so far uses the memory: what is given back before it is done waits for it.
  Status record_use(PoolBlockId id, StreamId stream) noexcept;
  Status record_use_at(std::uint64_t offset, std::uint64_t size, StreamId stream) noexcept;
  Status reap_pending() noexcept;
  // Waits for the streams that use the memory, so that the destructor does not have to. Nothing changes.
  Status wait_before_end(const Wait& wait) noexcept;
  // Cached pages, and those of blocks whose streams have passed.
  std::uint64_t release_idle(std::uint64_t wanted) noexcept override;

  // Moves movable blocks together and gives back the pages that become empty. What moved is in the report, whatever
  // comes of the rest.
  Status compact(const CompactionLimits& limits, CompactionReport* report) noexcept;

  // What carries the tag, in the order of addresses, and a hold on each, so that its contents can be copied away.
  // `still_held` while somebody else holds any of it, `stream_misuse` while a stream uses it.
  Status hold_tagged(TagId tag, std::vector<PoolBlock>* blocks) noexcept;
  Status list_suspended(TagId tag, std::vector<PoolBlock>* blocks) const noexcept;
  // Whether anything is left that was suspended under this number.
  bool has_suspended(std::uint64_t suspension) const noexcept;
  // Gives up the memory behind these blocks, the caller's holds with it, and keeps their addresses; all or none. They
  // are given the number; 0: they keep the last one.
  Status suspend(const std::vector<PoolBlockId>& ids, std::uint64_t suspension) noexcept;
  // Puts memory behind them again and holds them, so that their contents can be copied back; all or none.
  Status resume(const std::vector<PoolBlockId>& ids) noexcept;

  VirtualPoolStats stats() const noexcept;
  std::uint64_t physical_bytes() const noexcept { return pages_->cache().held_pages() * page_bytes(); }
  bool is_valid() const noexcept;

 private:
  using Blocks = std::map<std::uint64_t, PoolBlock>;  // by offset
  struct PageSpan {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::uint64_t end() const noexcept { return first + count; }
  };
  struct Retired {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t extent = 0;
  };
  static constexpr std::uint64_t kGranule = 256;
  class Work;  // pages taken from the cache for one call, given back at its end

  VirtualMemoryPool(Driver& driver, const VirtualPoolOptions& options, BudgetPtr budget,
                    std::unique_ptr<ElasticPages> pages);

  PageSpan span_of(std::uint64_t offset, std::uint64_t size) const noexcept;
  Status check_place(std::uint64_t offset, std::uint64_t size, PageSpan* span) const noexcept;
  // What of the span has no memory: always one run, because only the ends of a block share their pages.
  PageSpan missing_in(const PageSpan& span) const noexcept;
  Status map_missing(const PageSpan& missing, Work& work);
  void add_references(const PageSpan& span) noexcept;
  void remove_references(const PageSpan& span, bool retired = false) noexcept;
  // Pages that nothing else lies in are unmapped; on failure nothing has changed.
  Status drop_references(const PageSpan& span, Work& work, bool retired = false);
  template <typename Attempt>
  Status with_pages(Attempt&& attempt) noexcept;

  Status find_block(PoolBlockId id, Blocks::iterator* at) noexcept;
  Blocks::iterator note(PoolBlock block);
  void forget(Blocks::iterator at) noexcept;
  Status note_use(PoolBlock& block, StreamId stream);
  // What must be done before memory used like this, and given back on `stream`, is free. Empty: nothing.
  Status pending_uses(const Uses& uses, StreamId stream, Uses* until);
  Status end_range(const PoolBlock& block, const Uses& until, Work& work);
  void retire(const PoolBlock& block, const Uses& until);
  void end_dropped(Blocks::iterator at, Work& work) noexcept;
  void release_hold(Blocks::iterator at, Work& work) noexcept;
  Status reap_locked(Work& work) noexcept;
  Status check_named(const PageSpan& span) const noexcept;
  void split_named(std::uint64_t offset);
  Status shrink(PoolBlockId id, std::uint64_t size) noexcept;
  Status grow(PoolBlockId id, std::uint64_t size) noexcept;
  Status grow_in_place(Blocks::iterator at, std::uint64_t size, Work& work, PageSpan* missing);
  Status grow_elsewhere(Blocks::iterator at, std::uint64_t size, Work& work, PageSpan* missing);
  PageSpan added_span(const PoolBlock& block, std::uint64_t size) const noexcept;
  Status extend(PoolBlock& block, std::uint64_t size, Work& work);
  bool can_move(const PoolBlock& block) noexcept;
  Status copy_bytes(std::uint64_t from, std::uint64_t to, std::uint64_t size) noexcept;
  void move_note(Blocks::iterator at, std::uint64_t to, CompactionReport* report);
  Status slide(Blocks::iterator at, std::uint64_t to, Work& work, CompactionReport* report);
  bool slide_needs_page(const PoolBlock& block, std::uint64_t to) const noexcept;

  struct PartialPage;
  struct Relocation;
  class Packing;
  class Clock;
  Status compact_locked(const Clock& clock, Work& work, std::uint64_t* wanted, CompactionReport* report);
  Status pack_pages(bool into_all, const Clock& clock, Work& work, CompactionReport* report);
  Status empty_page(const PartialPage& victim, const std::vector<std::uint64_t>& places, Work& work,
                    CompactionReport* report);
  std::uint64_t pages_of_its_own(const PoolBlock& block, const PageSpan& other) const noexcept;
  std::uint64_t unmapped_in(const PageSpan& span) const noexcept;
  Status line_up_pages(const Clock& clock, Work& work, CompactionReport* report);
  std::uint64_t wasted_by(const PoolBlock& block) const noexcept;
  Relocation find_relocation(const PoolBlock& block) const;
  Relocation join_others(const PoolBlock& block) const noexcept;
  Status relocate_blocks(const Clock& clock, Work& work, std::uint64_t* wanted, CompactionReport* report);
  Status slide_blocks(const Clock& clock, Work& work, CompactionReport* report);
  Status move_down(Blocks::iterator at, std::uint64_t to, Work& work, CompactionReport* report);
  bool is_slidable(const PoolBlock& block) noexcept;
  Status check_unheld(const PoolBlock& block, std::uint32_t own_holds) const noexcept;
  Status check_suspendable(const PoolBlock& block, std::uint32_t own_holds) noexcept;
  void undo_suspension(const std::vector<Blocks::iterator>& found, std::size_t count, Work& work);
  Status resume_all(const std::vector<Blocks::iterator>& found, Work& work);

  Driver& driver_;
  const std::int32_t device_;
  const BudgetPtr budget_;
  StreamOrder order_;
  std::unique_ptr<ElasticPages> pages_;
  mutable Mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  ExtentMap extents_;
  LazyArray<std::uint32_t> references_;  // of each page: what lies in it and is not suspended
  LazyArray<std::uint32_t> waiting_;     // of those, what was given back and waits for streams
  PageBitmap live_;                      // pages with references that do not wait
  Blocks blocks_;
  std::unordered_map<PoolBlockId, std::uint64_t> offsets_;
  RetiredList<Retired> retired_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t retired_bytes_ = 0;
  std::uint64_t suspended_bytes_ = 0;
  mutable std::uint64_t peak_physical_bytes_ = 0;
  PoolBlockId next_id_ = 1;
  BudgetMembership membership_;  // the youngest: asked only while all of the above is there
};

}  // namespace tensormem

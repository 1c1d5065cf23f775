// Owns: a cache of blocks of one size, packed into pages of which only those in use have memory. A block has an id for
// its life and an address that compaction may change. The fullest pages are filled first, so that the others run empty;
// empty ones are kept up to a threshold and then go back. Every call on several blocks does all that it says, or
// nothing.
//   Blocks lie in frames: runs of pages that hold whole blocks, mapped and unmapped together. A frame is one page if
//   blocks fit into that with little waste, and several where they would not; no block straddles two frames. Frames are
//   cut so that nothing is left over: the address of a place is its number times one stride, from the first to the
//   last. With several planes (a layer of a model, keys, values) a block has a part in each, at the same place.
// Must not know: Python; what is in a block; how callers learn that a block moved (it tells them what moved).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "order/retired_list.hpp"
#include "pool/block_frames.hpp"
#include "pool/block_ids.hpp"
#include "pool/demand_memory.hpp"
#include "pool/elastic_pages.hpp"

namespace tensormem {

struct BlockCacheOptions {
  std::uint64_t capacity = 0;     // bytes of addresses of all planes, rounded up to a frame
  std::uint64_t block_bytes = 0;  // in each plane
  std::uint64_t page_bytes = 2ULL << 20;
  std::uint64_t planes = 1;
  std::int32_t device = 0;
  std::uint64_t idle_bytes = ~0ULL;  // empty pages that are kept at most, with their addresses
  double demand_blocks = 0;          // of them, those that were in use before the last so many blocks ended; 0: all
  std::uint64_t ahead_pages = 0;     // made ahead, by `step_ahead` or a thread
  bool background = false;
};

struct BlockCacheStats {
  std::uint64_t block_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t planes = 0;
  std::uint64_t pages_per_frame = 0;  // in each plane
  std::uint64_t blocks_per_frame = 0;
  std::uint64_t capacity_blocks = 0;
  std::uint64_t live_blocks = 0;
  std::uint64_t retired_blocks = 0;  // freed, and waiting for streams
  std::uint64_t pinned_blocks = 0;
  std::uint64_t used_pages = 0;    // with a block in them, or in their frame
  std::uint64_t floor_pages = 0;   // what the blocks would need, packed
  std::uint64_t cached_pages = 0;  // empty, kept for reuse or made ahead
  std::uint64_t physical_bytes = 0;
  std::uint64_t peak_physical_bytes = 0;
  std::uint64_t created_pages = 0;
  std::uint64_t total_allocated = 0;
  std::uint64_t total_freed = 0;
  std::uint64_t total_moved = 0;
};

// Places; addresses follow from them.
struct CacheBlockMove {
  CacheBlockId id = 0;
  Place from = 0;
  Place to = 0;
};

struct PackingReport {
  std::uint64_t copied_bytes = 0;
  std::uint64_t released_pages = 0;  // empty now, and kept or given back
  double seconds = 0;
  bool finished = false;
  std::vector<CacheBlockMove> moves;
};

class BlockCache final : public BudgetMember {
 public:
  static Status open(Driver& driver, const BlockCacheOptions& options, BudgetPtr budget,
                     std::shared_ptr<BlockCache>* cache) noexcept;
  ~BlockCache() override;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  std::uint64_t base() const noexcept { return pages_->base(); }
  std::uint64_t capacity() const noexcept { return frames_.frame_count() * frame_bytes(); }
  std::uint64_t capacity_blocks() const noexcept { return frames_.frame_count() * shape_.blocks; }
  std::uint64_t block_bytes() const noexcept { return block_bytes_; }
  std::uint64_t planes() const noexcept { return planes_; }
  std::uint64_t stride() const noexcept { return shape_.stride; }
  std::uint64_t plane_bytes() const noexcept { return frames_.frame_count() * shape_.pages * page_bytes(); }
  // In the first plane; the others follow at multiples of `plane_bytes`.
  std::uint64_t address_of(Place place) const noexcept { return base() + place * shape_.stride; }
  std::uint64_t page_bytes() const noexcept { return pages_->page_bytes(); }
  std::uint64_t physical_bytes() const noexcept { return pages_->cache().held_pages() * page_bytes(); }
  const BudgetPtr& budget() const noexcept { return budget_; }

  Status allocate(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept;
  // The same, and `free` on the default stream, if that takes no page, no driver and no wait; false, and nothing was
  // done, if it does or might be refused: then call the other. After `try_free`, empty pages may be above the threshold
  // until `return_excess`.
  bool try_allocate(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept;
  bool try_free(const CacheBlockId* ids, std::uint64_t count) noexcept;
  bool has_excess() const noexcept { return has_excess_.load(std::memory_order_relaxed); }
  void return_excess() noexcept;
  // The places are used again when the work queued on `stream`, and every recorded use, is done; the ids are gone at
  // once. `still_held` for a pinned block.
  Status free(const CacheBlockId* ids, std::uint64_t count, StreamId stream) noexcept;
  Status addresses(const CacheBlockId* ids, std::uint64_t count, std::uint64_t* addresses) const noexcept;
  // The places as numbers of any width; the capacity says whether 32 bits will do.
  Status slots(const CacheBlockId* ids, std::uint64_t count, std::int32_t* slots) const noexcept;
  Status slots(const CacheBlockId* ids, std::uint64_t count, std::int64_t* slots) const noexcept;
  // The blocks that are at these places now; `not_mapped(place)` if there is none at one of them.
  Status blocks_at(const std::int64_t* slots, std::uint64_t count, CacheBlockId* ids) const noexcept;
  // Whether every place that [address, address + nbytes) touches, in whichever plane, has a block.
  Status check_range(std::uint64_t address, std::uint64_t nbytes) const noexcept;
  // The bytes of each block of `from` in the one of `to` beside it, in the order of `stream`.
  Status copy(const CacheBlockId* from, const CacheBlockId* to, std::uint64_t count, StreamId stream) noexcept;

  // A pinned block is neither moved nor freed. Pins are counted.
  Status pin(const CacheBlockId* ids, std::uint64_t count) noexcept;
  Status unpin(const CacheBlockId* ids, std::uint64_t count) noexcept;
  // Work queued on `stream` so far uses the blocks: until it is done they are not moved, and their places not reused.
  Status record_use(const CacheBlockId* ids, std::uint64_t count, StreamId stream) noexcept;
  Status reap_pending() noexcept;
  // Waits for the streams that use the memory, so that the destructor does not have to. Nothing changes.
  Status wait_before_end(const Wait& wait) noexcept;

  // Blocks whose end would empty frames of `nbytes` in all: as few blocks as can be, frame by frame. With `candidates`
  // only those may end; otherwise all that are not pinned.
  Status eviction_hints(std::uint64_t nbytes, const CacheBlockId* candidates, std::uint64_t candidate_count,
                        bool any_block, std::vector<CacheBlockId>* ids) noexcept;
  // Copies blocks from the emptiest frames into the holes of the fullest, as far as the limits allow. What moved is in
  // the report, whatever comes of the rest.
  Status compact(std::uint64_t max_bytes, double max_seconds, PackingReport* report) noexcept;

  // How many of `count` blocks there is neither a free place nor room in the budget for.
  std::uint64_t lacking_blocks(std::uint64_t count) const noexcept;
  // What pages that hold nothing have, mapped or not.
  std::uint64_t idle_bytes_now() const noexcept;
  // Suspension, in this order: nothing changes any more; all memory goes; all of it is back, or none; all goes on.
  // Blocks keep ids and places. `still_held` while one is pinned, `stream_misuse` while a stream uses one.
  Status begin_suspension() noexcept;
  Status drop_memory() noexcept;
  Status restore_memory() noexcept;
  void cancel_suspension() noexcept;
  // The places that have a block.
  Status live_blocks(std::vector<Place>* places) const noexcept;

  // Gives empty pages back until at most `keep_bytes` of them are left; says how many pages went.
  std::uint64_t trim(std::uint64_t keep_bytes) noexcept;
  // Empty pages, mapped or not.
  std::uint64_t release_idle(std::uint64_t wanted) noexcept override;
  std::uint64_t step_ahead(std::uint64_t most_pages) noexcept { return pages_->cache().step_ahead(most_pages); }
  void set_retention(std::uint64_t idle_bytes, double demand_blocks) noexcept;

  BlockCacheStats stats() const noexcept;
  bool is_valid() const noexcept;

 private:
  struct Shape {
    std::uint64_t stride = 0;  // from block to block
    std::uint64_t pages = 0;   // of a frame, in each plane
    std::uint64_t blocks = 0;
  };
  struct Run {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  using Places = std::vector<Place>;
  class LoosePages;  // taken for one call, or unmapped by it; given back at its end
  class Limits;

  static constexpr std::uint32_t kRetired = ~0U;  // the owner of a place that waits for streams

  static Status check(Driver& driver, const BlockCacheOptions& options, Shape* shape) noexcept;
  static Shape choose_shape(std::uint64_t block_bytes, std::uint64_t page_bytes) noexcept;
  BlockCache(Driver& driver, const BlockCacheOptions& options, const Shape& shape, BudgetPtr budget,
             std::unique_ptr<ElasticPages> pages);

  // Of all planes.
  std::uint64_t frame_pages() const noexcept { return shape_.pages * planes_; }
  std::uint64_t frame_bytes() const noexcept { return frame_pages() * page_bytes(); }
  std::uint64_t page_of(std::uint64_t frame, std::uint64_t plane) const noexcept {
    return (plane * frames_.frame_count() + frame) * shape_.pages;
  }
  // How many frames more are needed for `count` blocks; `out_of_virtual_memory` if there are not so many.
  Status frames_needed(std::uint64_t count, std::uint64_t* frames) const noexcept;
  // The next frames without memory, side by side, at most `most` of them.
  Run next_run(std::uint64_t from, std::uint64_t most) const noexcept;
  void wish_for(std::uint64_t frames, std::vector<std::uint64_t>* homes) const;
  Status back_frames(std::uint64_t frames, LoosePages& loose);
  Status back_run(const Run& run, LoosePages& loose);
  Status map_run(const Run& run, LoosePages& loose) noexcept;
  std::vector<Run> used_runs() const;
  Status unmap_runs(const std::vector<Run>& runs, LoosePages& loose) noexcept;
  Status check_awake() const noexcept;
  void unback_run(const Run& run, LoosePages& loose) noexcept;
  // How much of what is empty is worth keeping.
  std::uint64_t keep_bytes() const noexcept;
  void unback_idle(std::uint64_t keep_bytes, LoosePages& loose) noexcept;
  void end_rows() noexcept;  // those of the call under way
  void hand_out(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept;

  // The rows of the ids, all live.
  Status find_all(const CacheBlockId* ids, std::uint64_t count, std::vector<std::uint32_t>* rows);
  bool is_place_used(Place place) const noexcept;
  Status check_unpinned(const std::vector<std::uint32_t>& rows) const noexcept;
  void pin_row(std::uint32_t row) noexcept;
  void unpin_row(std::uint32_t row) noexcept;
  Status end_of_stream(StreamId stream, Uses* until);
  Uses uses_left(std::uint32_t row);
  // Retires those of the rows that work may still use; the others are left.
  Status retire_used(StreamId stream, std::vector<std::uint32_t>* rows);
  void report_begin(std::uint32_t row) const noexcept;
  void report_end(std::uint32_t row) const noexcept;
  void forget_row(std::uint32_t row) noexcept;
  void drop_done_uses() noexcept;
  Status reap_locked(LoosePages& loose) noexcept;

  template <typename Slot>
  Status write_slots(const CacheBlockId* ids, std::uint64_t count, Slot* slots) const noexcept;
  Status queue_copy(Place from, Place to, StreamId stream) noexcept;
  Status copy_block(Place from, Place to) noexcept;
  Status move_block(Place from, PackingReport* report);
  std::uint64_t choose_victim() const noexcept;
  bool can_empty(std::uint64_t frame) const noexcept;
  Status empty_frame(std::uint64_t frame, const Limits& limits, PackingReport* report);
  std::uint64_t floor_frames() const noexcept { return (frames_.taken_count() + shape_.blocks - 1) / shape_.blocks; }
  void note_peak() noexcept;

  Driver& driver_;
  const std::int32_t device_;
  const std::uint64_t block_bytes_;
  const std::uint64_t planes_;
  const Shape shape_;
  const BudgetPtr budget_;
  StreamOrder order_;
  std::unique_ptr<ElasticPages> pages_;
  mutable Mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  BlockFrames frames_;
  BlockIds ids_;
  std::unordered_map<std::uint32_t, Uses> uses_;  // by row
  RetiredList<Places> retired_;
  std::vector<std::uint32_t> scratch_;  // rows of the call under way
  std::uint64_t idle_bytes_;
  DemandMemory demand_;  // in blocks
  std::atomic<bool> has_excess_{false};
  bool suspended_ = false;
  std::uint64_t retired_blocks_ = 0;
  std::uint64_t pinned_blocks_ = 0;
  std::uint64_t peak_physical_bytes_ = 0;
  std::uint64_t total_allocated_ = 0;
  std::uint64_t total_freed_ = 0;
  std::uint64_t total_moved_ = 0;
  BudgetMembership membership_;  // the youngest: asked only while all of the above is there
};

}  // namespace tensormem

// Owns: memory taken from an upstream in chunks and cut into blocks of any size, in constant time.
//   A block given back on a stream that runs inline is free for everyone at once. One given back on another stream is
//   pending: that stream may have it again at once, everyone else when the stream is proven to have passed, or behind
//   an event. Neighbours coalesce at once among the free and among the pending of one stream. Looking for room: the
//   stream's own pending ranges, free ranges, ranges whose streams have passed, a new chunk, and last other streams'
//   pending ranges, behind their events. A stream that runs inline cannot be put behind an event: there the caller
//   waits for whichever range passes first. Its stream may wait for the caller in turn, so this wait has an end.
//   A chunk of a stream-ordered upstream exists from a point of a stream on, so it begins as pending on that stream.
//   Growth is shared: who misses while the pool grows waits for that, and the next growth is for all who still miss.
//   It grows by what is missing. A large block gets a chunk of its size; an empty chunk that is larger is cut for it
//   only while what is lost by cutting stays a small share of the peak. Small blocks are cut from slabs.
// Empty chunks go back to the upstream by `trim`, by themselves above the release threshold, and before the pool takes
// more than it ever had.
// Must not know: where the upstream's memory comes from.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "alloc/generation.hpp"
#include "base/fork_guard.hpp"
#include "base/spinlock.hpp"
#include "order/pending_ranges.hpp"
#include "order/retired_list.hpp"
#include "resource/parked_ranges.hpp"
#include "resource/pool_chunk.hpp"
#include "resource/resource.hpp"

namespace tensormem {

struct PoolOptions {
  std::uint64_t initial_bytes = 0;
  std::uint64_t maximum_bytes = kNoOverflowLimit;
  std::uint64_t release_threshold = kNoOverflowLimit;  // reserved bytes above which empty chunks go back at once
  std::uint64_t block_bytes = 0;                       // when set, every block takes this much, and none more
  std::uint64_t chunk_bytes = 0;                       // when set, it grows by this much at a time
  std::uint64_t pending_timeout_ns = 10'000'000'000;   // how long an inline caller waits for other streams
};

struct PoolUsage {
  std::uint64_t reserved_bytes = 0;  // taken from the upstream
  std::uint64_t total_free = 0;      // free for everyone
  std::uint64_t largest_free = 0;
  std::uint64_t pending_bytes = 0;  // free for one stream, or waiting for streams
  std::uint64_t chunk_count = 0;

  double fragmentation() const {
    return total_free == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free) / static_cast<double>(total_free);
  }
};

class PoolMemoryResource final : public Resource {
 public:
  // Fails when the upstream does not have the initial bytes.
  static Status create(ResourcePtr upstream, const PoolOptions& options, std::shared_ptr<PoolMemoryResource>* out);
  ~PoolMemoryResource() override;

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override;
  Stats stats() const override;
  BlockState state_of(const Block& block) const override;
  Status reap_pending() override;

  bool supports_block_use_tracking() const override { return true; }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

  PoolUsage usage();
  // How many threads wait for the pool to grow.
  std::size_t waiting_count() const;
  // A block of what is free or proven passed by now: without growing, and without waiting.
  bool take_passed(const AllocRequest& request, Block* block) { return take_passed(request, block, Cut::with_care); }
  // Whether it may fit once every stream has passed.
  bool may_come_free(const AllocRequest& request) const;
  // Gives empty chunks back until at most `keep_bytes` are reserved; says how many bytes went.
  Status trim(std::uint64_t keep_bytes, std::uint64_t* released);
  bool is_valid() const override;

 private:
  struct Waiting {  // a block that is neither live nor pending: other streams still use it
    RangeName name;
    std::uint64_t nbytes = 0;
  };
  using Pendings = std::unordered_map<StreamId, PendingRanges>;
  struct Growth;
  struct Miss;
  using MissPtr = std::shared_ptr<Miss>;
  using Misses = std::vector<MissPtr>;
  struct Flight;
  struct Origin {  // who may share a growth: the stream that the chunk exists on first, and what it is for
    StreamId stream = kDefaultStream;
    PoolRoom room = kSmallRoom;
    bool operator==(const Origin&) const = default;
  };

  PoolMemoryResource(ResourcePtr upstream, const PoolOptions& options);

  // Kept with a range next to its generation: given back, and waiting for streams.
  static constexpr std::uint64_t kRetiredBit = 1ULL << 63;

  // With the lock.
  bool runs_inline(StreamId stream) const { return stream == kDefaultStream && default_is_inline_; }
  std::uint64_t range_bytes(const AllocRequest& request) const {
    return options_.block_bytes == 0 ? request.nbytes : options_.block_bytes;
  }
  PoolRoom room_of(const AllocRequest& request) const {
    return range_bytes(request) < large_from_ ? kSmallRoom : kLargeRoom;
  }
  std::uint64_t granules(std::uint64_t nbytes) const {
    return ((options_.block_bytes == 0 ? nbytes : options_.block_bytes) + kPoolGranule - 1) / kPoolGranule;
  }
  bool take_parked(const AllocRequest& request, Block* block);
  bool take_free(const AllocRequest& request, Block* block);
  enum class Cut : std::uint8_t { with_care, at_any_cost };
  bool take_from(PoolRoom room, const AllocRequest& request, Block* block, Cut cut = Cut::with_care);
  bool take_own(const AllocRequest& request, Block* block);
  // Whether cutting an empty chunk for this range, of which `unused` is too much, loses more than may be lost.
  bool cuts_too_much(std::uint32_t node, std::uint64_t unused);
  std::uint64_t lost_by_cutting() const;
  std::uint64_t may_be_lost() const;
  // Gives the misses their blocks of new memory that is taken as a whole; whether one of them has one now. The rest is
  // free, or pending on the stream of the first.
  bool hand_out_whole(RangeName whole, const Misses& misses, bool pending);
  // Turns a range of the large room into a slab, which begins as taken.
  Status add_slab(std::uint64_t address, std::uint64_t nbytes, std::uint32_t node, RangeName* whole);
  void remove_slab(std::map<std::uint64_t, PoolSlab>::iterator slab);
  void remove_free_slabs();
  // A slab for these misses of what is left over beside large blocks, or of the initial chunk.
  bool carve_slab(std::uint64_t nbytes, const Misses& misses);
  // Of what came no later than `until`.
  bool take_pending(PendingRanges& ranges, const AllocRequest& request, Block* block, std::uint64_t until = ~0ULL,
                    Cut cut = Cut::with_care);
  void hand_out(const AllocRequest& request, RangeName name, Block* block);
  bool is_ours(const Block& block) const;
  Status check_live(const Block& block) const;
  void end_range(const Block& block, StreamId stream);
  void free_range(RangeName name);
  void free_parked();
  void add_pending(RangeName name, StreamId stream);
  void join_pending(PendingRanges& ranges, PendingRange range);
  bool has_surplus(const Block& block);
  // With the lock, which is let go while the driver is asked.
  using Lock = std::unique_lock<Spinlock>;
  // The uses of a live block; null when nobody but `stream` has anything to do with it.
  Status uses_of(Lock& lock, const Block& block, StreamId stream, BlockUses** uses);
  Status end_behind_others(Lock& lock, const Block& block, StreamId stream, BlockState* end);
  Status order_end(const Uses& others, StreamId stream, bool* passed);
  struct Passage;
  std::vector<Passage> list_pending() const;
  void ask(Passage* passage);
  void promote(const Passage& passage);
  Status reap_locked(Lock& lock);
  bool steal(Lock& lock, const AllocRequest& request, Block* block, Status* failure);
  // With the lock.
  PoolChunks take_empty_chunks(std::uint64_t keep_bytes, bool initial_too = true);
  std::uint64_t idle_bytes() const;
  std::uint64_t step(PoolRoom room, std::uint64_t need) const;
  Origin origin_of(const AllocRequest& request) const;
  PoolChunks make_room(Flight* flight);
  void board(Flight* flight);
  void forget_flights_of_parent();
  Status out_of_memory(std::uint64_t requested);
  PoolUsage usage_locked();

  // Without it.
  // At any cost: also from the other room, and from whatever must be cut for it.
  bool take_passed(const AllocRequest& request, Block* block, Cut cut);
  Status refuse_large(std::uint64_t nbytes);
  Status allocate_slowly(const AllocRequest& request, Block* block);
  Status allocate_without_growing(const AllocRequest& request, Status grown, Block* block);
  Status wait_for_room(const AllocRequest& request, Block* block, bool* found);
  // Whether this thread serves a growth of this very pool: it would wait for itself.
  bool is_growing_here() const;
  // Until those who were growing are done, or one of them has added something; false when nobody was.
  Status wait_for_growth(bool* waited);
  // The miss is served, refused, or left to its thread.
  Status share_growth(const MissPtr& miss);
  void fly(Origin origin);
  void end_flight(Origin origin);
  // For this request alone, and no more than it needs.
  Status grow_alone(const AllocRequest& request, Block* block);
  // With the misses that the chunk is added for; some may be left over, but not all.
  Status add_chunk(std::uint64_t nbytes, std::uint64_t alignment, const Misses& misses);
  Status keep(PoolChunk chunk, const Misses& misses);
  Status check_place(const Block& memory);
  Status wait_for_pending();
  Status give_back(PoolChunks chunks, std::uint64_t* released);

  const ResourcePtr upstream_;
  const PoolOptions options_;
  const std::uint64_t largest_block_;
  const std::uint64_t large_from_;  // the smallest size of the large room
  const bool default_is_inline_;
  const bool parks_;  // not when empty chunks must go back at once: a parked range would keep its chunk
  StreamOrder order_;

  mutable Spinlock lock_;  // guards everything below; never held over the driver, the upstream or a wait
  ForkGuard fork_guard_{lock_};
  std::map<std::uint64_t, PoolChunk> chunks_;  // by address, as the slabs
  std::map<std::uint64_t, PoolSlab> slabs_;
  std::array<OffsetAllocator, kPoolRooms> spaces_;  // offsets are addresses
  GenerationSource generations_;
  Stats stats_;
  std::uint64_t reserved_ = 0;
  std::uint64_t peak_reserved_ = 0;
  std::uint64_t swaps_ = 0;  // growths that an empty chunk was given back for
  std::uint64_t deallocations_ = 0;
  std::vector<std::uint64_t> growths_;  // chunks that are being added, by number
  std::uint64_t next_growth_ = 1;
  std::uint64_t chunks_added_ = 0;
  std::vector<Origin> flights_;  // growths that misses may share: one at most for each origin
  Misses misses_;                // waiting for the next one, the oldest first
  std::int64_t process_ = 0;     // whose flights they are
  ParkedRanges parked_;
  std::array<Pendings, kPoolRooms> pending_;
  RetiredList<Waiting> retired_;
  std::unordered_map<std::uint64_t, BlockUses> uses_;  // by generation; only blocks whose uses are tracked
};

}  // namespace tensormem

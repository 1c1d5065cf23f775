// Owns: the sequences of an engine over one block cache: which blocks hold the tokens of each, in order. Sequences that
// were forked share blocks until one of them writes; full blocks whose contents were told are found again by others.
// Blocks that nobody holds stay as long as there is room, and end when this table, the budget or another member of it
// is short. Every call on several sequences does all that it says, or nothing.
// Must not know: Python; what keys and values are. It holds no lock while it asks the cache for blocks, because that
// may ask the budget, and so this table, for memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "pool/block_cache.hpp"
#include "pool/shared_blocks.hpp"

namespace tensormem {

using SequenceId = CacheBlockId;

struct BlockTablesStats {
  std::uint64_t sequences = 0;
  std::uint64_t held_blocks = 0;
  std::uint64_t resting_blocks = 0;  // held by nobody, and found by their contents
  std::uint64_t asked_tokens = 0;    // by `admit`
  std::uint64_t matched_tokens = 0;
  std::uint64_t total_copied = 0;  // blocks, before a write
  std::uint64_t total_evicted = 0;
};

class BlockTables final : public BudgetMember {
 public:
  static Status open(std::shared_ptr<BlockCache> cache, std::uint64_t block_tokens,
                     std::shared_ptr<BlockTables>* tables) noexcept;
  ~BlockTables() override;
  BlockTables(const BlockTables&) = delete;
  BlockTables& operator=(const BlockTables&) = delete;

  BlockCache& cache() const noexcept { return *cache_; }
  std::uint64_t block_tokens() const noexcept { return block_tokens_; }

  // New sequences with room for so many tokens each.
  Status allocate(const std::int64_t* lengths, std::uint64_t count, TagId tag, SequenceId* sequences) noexcept;
  // The same for sequences whose tokens are known, one after the other in `tokens`: full blocks that hold the same
  // tokens behind the same ones are shared. `matched` is how many tokens of each need not be computed: never all.
  Status admit(const std::int64_t* tokens, const std::int64_t* lengths, std::uint64_t count, std::uint64_t salt,
               TagId tag, SequenceId* sequences, std::int64_t* matched) noexcept;
  // So many tokens more for each. The last block is copied, in the order of `stream`, if others hold it as well.
  Status extend(const SequenceId* sequences, const std::int64_t* added, std::uint64_t count, TagId tag,
                StreamId stream) noexcept;
  // Only the first tokens are left.
  Status truncate(const SequenceId* sequences, const std::int64_t* lengths, std::uint64_t count) noexcept;
  // What the next tokens of each are, those told before left out: from then on full blocks can be found.
  Status commit(const SequenceId* sequences, const std::int64_t* tokens, const std::int64_t* lengths,
                std::uint64_t count) noexcept;
  // A twin of each, with the same blocks.
  Status fork(const SequenceId* sequences, std::uint64_t count, SequenceId* twins) noexcept;
  Status free(const SequenceId* sequences, std::uint64_t count) noexcept;

  Status lengths(const SequenceId* sequences, std::uint64_t count, std::int64_t* lengths) const noexcept;
  // The most blocks that one of them has.
  Status width(const SequenceId* sequences, std::uint64_t count, std::uint64_t* width) const noexcept;
  // A row of `width` slots for each, filled up with `fill`; `invalid_argument` if one has more.
  template <typename Slot>
  Status slots(const SequenceId* sequences, std::uint64_t count, std::uint64_t width, Slot fill, Slot* out) noexcept;
  // For each of `counts` tokens from `starts` on: its slot times the tokens of a block, plus its place there.
  Status token_slots(const SequenceId* sequences, const std::int64_t* starts, const std::int64_t* counts,
                     std::uint64_t count, std::int64_t* out) noexcept;
  Status blocks(SequenceId sequence, std::vector<CacheBlockId>* ids) const noexcept;

  // Ends resting blocks, the least recently used first; says how many.
  std::uint64_t evict(std::uint64_t count) noexcept;
  // The same until pages of so many bytes are empty, preferring blocks that empty pages among the older half.
  std::uint64_t evict_pages(std::uint64_t nbytes) noexcept;
  std::uint64_t release_idle(std::uint64_t wanted) noexcept override;

  BlockTablesStats stats() const noexcept;
  bool is_valid() const noexcept;

 private:
  using Record = SharedBlocks::Record;
  struct Sequence {
    std::vector<Record> blocks;
    std::vector<PrefixLink> links;      // behind each block whose contents were told
    std::vector<std::int64_t> pending;  // tokens told that do not fill a block yet
    PrefixLink root;
    std::uint64_t tokens = 0;
    bool told = true;  // false if a part of what was told is not known any more
  };
  class Spares;  // blocks of no sequence, for one call

  BlockTables(std::shared_ptr<BlockCache> cache, std::uint64_t block_tokens);
  std::uint64_t blocks_for(std::uint64_t tokens) const noexcept { return (tokens + block_tokens_ - 1) / block_tokens_; }
  Status gather(std::uint64_t wanted, TagId tag, Spares& spares) noexcept;
  Status check_lengths(const std::int64_t* lengths, std::uint64_t count) const noexcept;
  Status find_all(const SequenceId* sequences, std::uint64_t count);
  Status find_distinct(const SequenceId* sequences, std::uint64_t count);
  std::uint64_t match(const std::int64_t* tokens, std::uint64_t length, Sequence* sequence) const;
  void append(Sequence& sequence, std::uint64_t blocks, Spares& spares) noexcept;
  bool reserve_sequences(std::uint64_t count);
  std::uint32_t open_sequence(Sequence made) noexcept;
  bool shares_tail(const Sequence& sequence) const noexcept;
  Status copy_tails(const std::int64_t* added, Spares& spares, StreamId stream);
  // Takes one holder from each of `leaving`; blocks without holders rest or end.
  Status leave(const std::vector<Record>& leaving);
  Status end_records(const std::vector<Record>& ended);
  void forget_told(Sequence& sequence, std::uint64_t length);
  std::uint64_t evict_locked(std::uint64_t count) noexcept;

  const std::shared_ptr<BlockCache> cache_;
  const std::uint64_t block_tokens_;
  mutable Mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  BlockIds ids_;
  std::vector<Sequence> sequences_;  // by row
  SharedBlocks blocks_;
  std::vector<std::uint32_t> rows_;  // of the call under way
  std::vector<CacheBlockId> scratch_;
  std::uint64_t asked_tokens_ = 0;
  std::uint64_t matched_tokens_ = 0;
  std::uint64_t total_copied_ = 0;
  std::uint64_t total_evicted_ = 0;
  BudgetMembership membership_;  // the youngest: asked only while all of the above is there
};

}  // namespace tensormem

// Sequences, and what they hold. How they are read, and how blocks that nobody holds end, is in the file beside this
// one.
#include "pool/block_tables.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "pool/block_tables_parts.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kMostTokens = 1ULL << 40;  // of one sequence
constexpr std::uint64_t kMostBlockTokens = 1ULL << 20;

Status no_memory() {
  return Status::fail(Code::out_of_memory, "no memory for the books of block tables", sizeof(BlockTables));
}

}  // namespace

// --- The beginning and the end -------------------------------------------------------------------------------------

Status BlockTables::open(std::shared_ptr<BlockCache> cache, std::uint64_t block_tokens,
                         std::shared_ptr<BlockTables>* tables) noexcept try {
  if (block_tokens == 0 || block_tokens > kMostBlockTokens) {
    return Status::fail(Code::invalid_argument, "a block holds from 1 to 1,048,576 tokens");
  }
  std::shared_ptr<BlockTables> made(new BlockTables(std::move(cache), block_tokens));
  made->cache_->budget()->enlist(*made, &made->membership_);
  *tables = std::move(made);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

BlockTables::BlockTables(std::shared_ptr<BlockCache> cache, std::uint64_t block_tokens)
    : cache_(std::move(cache)),
      block_tokens_(block_tokens),
      ids_("these tables never gave out the sequence", "the sequence was freed before"),
      blocks_(block_tokens) {}

// Blocks go back one by one: what somebody has pinned stays, and is the cache's from then on.
BlockTables::~BlockTables() {
  membership_.end();
  TM_WALK(is_valid());
  blocks_.for_each([&](Record record) {
    const CacheBlockId id = blocks_.id_of(record);
    (void)cache_->free(&id, 1, kDefaultStream).ok();
  });
}

// --- Blocks for a call ---------------------------------------------------------------------------------------------

// What nobody holds makes room before a shortage is told, and before others are asked: a block that ends here leaves
// its place, and no page has to be made.
Status BlockTables::gather(std::uint64_t wanted, TagId tag, Spares& spares) noexcept {
  while (true) {
    const std::uint64_t lacking = wanted > spares.size() ? cache_->lacking_blocks(wanted - spares.size()) : 0;
    if (lacking != 0) (void)evict(lacking);
    Status status = spares.take_up_to(wanted, tag);
    if (status.ok()) return {};
    if (!is_shortage(status.code()) && status.code() != Code::out_of_virtual_memory) return status;
    if (evict(wanted - spares.size()) == 0) return status;
  }
}

void BlockTables::append(Sequence& sequence, std::uint64_t blocks, Spares& spares) noexcept {
  for (std::uint64_t i = 0; i < blocks; ++i) sequence.blocks.push_back(blocks_.add(spares.pop()));
}

bool BlockTables::reserve_sequences(std::uint64_t count) {
  const std::uint64_t needed = sequences_.size() + count;
  if (needed > sequences_.capacity()) sequences_.reserve(std::max<std::uint64_t>(needed, 2 * sequences_.capacity()));
  return ids_.reserve(count);
}

std::uint32_t BlockTables::open_sequence(Sequence made) noexcept {
  const std::uint32_t row = ids_.make(0, kUntagged);
  if (row == sequences_.size()) sequences_.emplace_back();
  sequences_[row] = std::move(made);
  return row;
}

Status BlockTables::check_lengths(const std::int64_t* lengths, std::uint64_t count) const noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (lengths[i] < 0 || static_cast<std::uint64_t>(lengths[i]) > kMostTokens) {
      return Status::fail(Code::invalid_argument, "a number of tokens is negative, or larger than any sequence");
    }
  }
  return {};
}

Status BlockTables::find_all(const SequenceId* sequences, std::uint64_t count) {
  rows_.resize(count);
  for (std::uint64_t i = 0; i < count; ++i) TM_TRY(ids_.find(sequences[i], &rows_[i]));
  return {};
}

Status BlockTables::find_distinct(const SequenceId* sequences, std::uint64_t count) {
  rows_.resize(count);
  TM_TRY(ids_.mark_all(sequences, count, rows_.data()));
  ids_.unmark(rows_.data(), count);
  return {};
}

// --- Sequences begin -----------------------------------------------------------------------------------------------

Status BlockTables::allocate(const std::int64_t* lengths, std::uint64_t count, TagId tag,
                             SequenceId* sequences) noexcept try {
  TM_TRY(check_lengths(lengths, count));
  std::uint64_t needed = 0;
  std::vector<Sequence> made(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    made[i].tokens = static_cast<std::uint64_t>(lengths[i]);
    made[i].root = SharedBlocks::root(0);
    made[i].blocks.reserve(blocks_for(made[i].tokens));
    needed += blocks_for(made[i].tokens);
  }
  Spares spares(*cache_);
  TM_TRY(gather(needed, tag, spares));
  const std::lock_guard lock(mutex_);
  if (!reserve_sequences(count)) return no_memory();
  blocks_.reserve(needed);
  for (std::uint64_t i = 0; i < count; ++i) {
    append(made[i], blocks_for(made[i].tokens), spares);
    sequences[i] = ids_.id_of(open_sequence(std::move(made[i])));
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

// The blocks that hold the beginning of the tokens already. One token at least is left to compute.
std::uint64_t BlockTables::match(const std::int64_t* tokens, std::uint64_t length, Sequence* sequence) const {
  sequence->blocks.clear();
  sequence->links.clear();
  PrefixLink link = sequence->root;
  for (std::uint64_t at = 0; at + block_tokens_ < length; at += block_tokens_) {
    const Record found = blocks_.find(link, tokens + at);
    if (found == SharedBlocks::kNone) break;
    link = blocks_.link_of(found);
    sequence->blocks.push_back(found);
    sequence->links.push_back(link);
  }
  return sequence->blocks.size();
}

Status BlockTables::admit(const std::int64_t* tokens, const std::int64_t* lengths, std::uint64_t count,
                          std::uint64_t salt, TagId tag, SequenceId* sequences, std::int64_t* matched) noexcept try {
  TM_TRY(check_lengths(lengths, count));
  Spares spares(*cache_);
  std::vector<Sequence> made(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    made[i].tokens = static_cast<std::uint64_t>(lengths[i]);
    made[i].root = SharedBlocks::root(salt);
    made[i].blocks.reserve(blocks_for(made[i].tokens));
    made[i].links.reserve(blocks_for(made[i].tokens));
  }
  while (true) {
    std::uint64_t needed = 0;
    {
      const std::lock_guard lock(mutex_);
      const std::int64_t* at = tokens;
      for (Sequence& each : made) {
        needed += blocks_for(each.tokens) - match(at, each.tokens, &each);
        at += each.tokens;
      }
      if (needed <= spares.size()) {
        if (!reserve_sequences(count)) return no_memory();
        blocks_.reserve(needed);
        for (std::uint64_t i = 0; i < count; ++i) {
          for (const Record shared : made[i].blocks) blocks_.hold(shared);
          const std::uint64_t known = made[i].blocks.size();
          matched[i] = static_cast<std::int64_t>(known * block_tokens_);
          asked_tokens_ += made[i].tokens;
          matched_tokens_ += known * block_tokens_;
          append(made[i], blocks_for(made[i].tokens) - known, spares);
          sequences[i] = ids_.id_of(open_sequence(std::move(made[i])));
        }
        return {};
      }
    }
    TM_TRY(gather(needed, tag, spares));
  }
} catch (const std::bad_alloc&) {
  return no_memory();
}

Status BlockTables::fork(const SequenceId* sequences, std::uint64_t count, SequenceId* twins) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(find_all(sequences, count));
  std::vector<Sequence> made(count);
  for (std::uint64_t i = 0; i < count; ++i) made[i] = sequences_[rows_[i]];
  if (!reserve_sequences(count)) return no_memory();
  for (std::uint64_t i = 0; i < count; ++i) {
    for (const Record shared : made[i].blocks) blocks_.hold(shared);
    twins[i] = ids_.id_of(open_sequence(std::move(made[i])));
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

// --- Sequences change ----------------------------------------------------------------------------------------------

// Whether the last block is written next and others hold it too.
bool BlockTables::shares_tail(const Sequence& sequence) const noexcept {
  return sequence.tokens % block_tokens_ != 0 && blocks_.holders(sequence.blocks.back()) > 1;
}

// All copies are queued before anything changes. Where sequences of the batch share a tail with one another only, the
// last of them keeps it: so no block ends here, which could be refused.
Status BlockTables::copy_tails(const std::int64_t* added, Spares& spares, StreamId stream) {
  std::vector<CacheBlockId> from;
  std::vector<Sequence*> copied;
  std::unordered_map<Record, std::uint32_t> leavers;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Sequence& sequence = sequences_[rows_[i]];
    if (added[i] == 0 || !shares_tail(sequence)) continue;
    if (++leavers[sequence.blocks.back()] == blocks_.holders(sequence.blocks.back())) continue;
    from.push_back(blocks_.id_of(sequence.blocks.back()));
    copied.push_back(&sequence);
  }
  if (from.empty()) return {};
  std::vector<Record> left;
  left.reserve(from.size());
  TM_TRY(cache_->copy(from.data(), spares.last(from.size()), from.size(), stream));
  for (std::size_t i = copied.size(); i-- > 0;) {
    left.push_back(std::exchange(copied[i]->blocks.back(), blocks_.add(spares.pop())));
  }
  total_copied_ += copied.size();
  return leave(left);
}

Status BlockTables::extend(const SequenceId* sequences, const std::int64_t* added, std::uint64_t count, TagId tag,
                           StreamId stream) noexcept try {
  TM_TRY(check_lengths(added, count));
  Spares spares(*cache_);
  while (true) {
    std::uint64_t needed = 0;
    {
      const std::lock_guard lock(mutex_);
      TM_TRY(find_distinct(sequences, count));
      for (std::uint64_t i = 0; i < count; ++i) {
        const Sequence& sequence = sequences_[rows_[i]];
        const std::uint64_t tokens = sequence.tokens + static_cast<std::uint64_t>(added[i]);
        if (tokens > kMostTokens) return Status::fail(Code::invalid_argument, "more tokens than any sequence has");
        needed += blocks_for(tokens) - sequence.blocks.size() + (added[i] != 0 && shares_tail(sequence) ? 1 : 0);
      }
      if (needed <= spares.size()) {
        blocks_.reserve(needed);
        for (std::uint64_t i = 0; i < count; ++i) {
          Sequence& sequence = sequences_[rows_[i]];
          const std::uint64_t blocks = blocks_for(sequence.tokens + static_cast<std::uint64_t>(added[i]));
          if (blocks > sequence.blocks.capacity())
            sequence.blocks.reserve(std::max(blocks, 2 * sequence.blocks.size()));
        }
        TM_TRY(copy_tails(added, spares, stream));
        for (std::uint64_t i = 0; i < count; ++i) {
          Sequence& sequence = sequences_[rows_[i]];
          // A full block that was cut is written again: nobody may find it by what it had.
          if (added[i] != 0 && sequence.tokens % block_tokens_ != 0) blocks_.forget(sequence.blocks.back());
          sequence.tokens += static_cast<std::uint64_t>(added[i]);
          append(sequence, blocks_for(sequence.tokens) - sequence.blocks.size(), spares);
        }
        return {};
      }
    }
    TM_TRY(gather(needed, tag, spares));
  }
} catch (const std::bad_alloc&) {
  return no_memory();
}

// What was told behind `length` is not so any more.
void BlockTables::forget_told(Sequence& sequence, std::uint64_t length) {
  const std::uint64_t full = length / block_tokens_;
  const std::uint64_t rest = length % block_tokens_;
  if (length >= sequence.links.size() * block_tokens_ + sequence.pending.size()) return;
  if (full == sequence.links.size()) {
    sequence.pending.resize(rest);
    return;
  }
  const std::int64_t* tokens = rest == 0 ? nullptr : blocks_.tokens_of(sequence.blocks[full]);
  sequence.links.resize(full);
  sequence.pending.clear();
  if (tokens != nullptr) sequence.pending.assign(tokens, tokens + rest);
  sequence.told = sequence.told && (rest == 0 || tokens != nullptr);
}

Status BlockTables::truncate(const SequenceId* sequences, const std::int64_t* lengths, std::uint64_t count) noexcept
    try {
  TM_TRY(check_lengths(lengths, count));
  const std::lock_guard lock(mutex_);
  TM_TRY(find_distinct(sequences, count));
  std::vector<Record> leaving;
  for (std::uint64_t i = 0; i < count; ++i) {
    Sequence& sequence = sequences_[rows_[i]];
    const auto length = static_cast<std::uint64_t>(lengths[i]);
    if (length > sequence.tokens) return Status::fail(Code::invalid_argument, "a sequence has fewer tokens than that");
    for (std::uint64_t at = sequence.blocks.size(); at-- > blocks_for(length);) leaving.push_back(sequence.blocks[at]);
    sequence.pending.reserve(block_tokens_);
  }
  TM_TRY(leave(leaving));
  for (std::uint64_t i = 0; i < count; ++i) {
    Sequence& sequence = sequences_[rows_[i]];
    sequence.tokens = static_cast<std::uint64_t>(lengths[i]);
    forget_told(sequence, sequence.tokens);
    sequence.blocks.resize(blocks_for(sequence.tokens));
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

Status BlockTables::commit(const SequenceId* sequences, const std::int64_t* tokens, const std::int64_t* lengths,
                           std::uint64_t count) noexcept try {
  TM_TRY(check_lengths(lengths, count));
  const std::lock_guard lock(mutex_);
  TM_TRY(find_distinct(sequences, count));
  for (std::uint64_t i = 0; i < count; ++i) {
    const Sequence& sequence = sequences_[rows_[i]];
    const std::uint64_t told = sequence.links.size() * block_tokens_ + sequence.pending.size();
    if (told + static_cast<std::uint64_t>(lengths[i]) > sequence.tokens) {
      return Status::fail(Code::invalid_argument, "more tokens were told than a sequence has");
    }
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    Sequence& sequence = sequences_[rows_[i]];
    const std::int64_t* const end = tokens + lengths[i];
    if (!sequence.told) tokens = end;
    sequence.pending.reserve(block_tokens_);
    while (tokens < end) {
      sequence.pending.push_back(*tokens);
      if (sequence.pending.size() == block_tokens_) {
        const std::size_t full = sequence.links.size();
        sequence.links.reserve(sequence.blocks.size());
        const PrefixLink before = full == 0 ? sequence.root : sequence.links.back();
        // One that others hold may be known by them already.
        const Record record = sequence.blocks[full];
        sequence.links.push_back(blocks_.is_known(record) ? blocks_.link_of(record)
                                                          : blocks_.remember(record, before, sequence.pending.data()));
        sequence.pending.clear();
      }
      ++tokens;
    }
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

// --- Sequences end -------------------------------------------------------------------------------------------------

// The blocks are freed first, which may be refused because one is pinned; then nothing has changed.
Status BlockTables::leave(const std::vector<Record>& leaving) {
  std::vector<Record> ended;
  ended.reserve(leaving.size());
  for (const Record record : leaving) {
    if (blocks_.drop(record) == 0 && !blocks_.is_known(record)) ended.push_back(record);
  }
  Status status = end_records(ended);
  if (!status.ok()) {
    for (const Record record : leaving) blocks_.undrop(record);
    return status;
  }
  for (const Record record : leaving) {
    if (blocks_.is_known(record) && blocks_.holders(record) == 0 && !blocks_.is_resting(record)) blocks_.rest(record);
  }
  return {};
}

Status BlockTables::end_records(const std::vector<Record>& ended) {
  scratch_.resize(ended.size());
  for (std::size_t i = 0; i < ended.size(); ++i) scratch_[i] = blocks_.id_of(ended[i]);
  TM_TRY(cache_->free(scratch_.data(), scratch_.size(), kDefaultStream));
  for (const Record record : ended) blocks_.end(record);
  return {};
}

// The last block of a sequence is the first to go: others may share the beginning.
Status BlockTables::free(const SequenceId* sequences, std::uint64_t count) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(find_distinct(sequences, count));
  std::vector<Record> leaving;
  for (const std::uint32_t row : rows_) {
    leaving.insert(leaving.end(), sequences_[row].blocks.rbegin(), sequences_[row].blocks.rend());
  }
  TM_TRY(leave(leaving));
  for (const std::uint32_t row : rows_) {
    sequences_[row] = Sequence{};
    ids_.drop(row);
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

}  // namespace tensormem

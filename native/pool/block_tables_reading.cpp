// How block tables are read: lengths, rows of slots, slots of tokens; and how blocks that nobody holds end.
#include <algorithm>
#include <new>

#include "pool/block_tables.hpp"
#include "pool/block_tables_parts.hpp"

namespace tensormem {

namespace {

Status no_memory() { return Status::fail(Code::out_of_memory, "no memory to read block tables", sizeof(CacheBlockId)); }

}  // namespace

// --- Rows ----------------------------------------------------------------------------------------------------------

Status BlockTables::lengths(const SequenceId* sequences, std::uint64_t count, std::int64_t* lengths) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t row = 0;
    TM_TRY(ids_.find(sequences[i], &row));
    lengths[i] = static_cast<std::int64_t>(sequences_[row].tokens);
  }
  return {};
}

Status BlockTables::width(const SequenceId* sequences, std::uint64_t count, std::uint64_t* width) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t row = 0;
    TM_TRY(ids_.find(sequences[i], &row));
    *width = std::max<std::uint64_t>(*width, sequences_[row].blocks.size());
  }
  return {};
}

template <typename Slot>
Status BlockTables::slots(const SequenceId* sequences, std::uint64_t count, std::uint64_t width, Slot fill,
                          Slot* out) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(find_all(sequences, count));
  for (const std::uint32_t row : rows_) {
    if (sequences_[row].blocks.size() > width) {
      return Status::fail(Code::invalid_argument, "a sequence has more blocks than a row of the table has room for");
    }
  }
  for (const std::uint32_t row : rows_) {
    const std::vector<Record>& blocks = sequences_[row].blocks;
    scratch_.resize(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) scratch_[i] = blocks_.id_of(blocks[i]);
    TM_TRY(cache_->slots(scratch_.data(), blocks.size(), out));
    std::fill(out + blocks.size(), out + width, fill);
    out += width;
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

template Status BlockTables::slots(const SequenceId*, std::uint64_t, std::uint64_t, std::int32_t,
                                   std::int32_t*) noexcept;
template Status BlockTables::slots(const SequenceId*, std::uint64_t, std::uint64_t, std::int64_t,
                                   std::int64_t*) noexcept;

Status BlockTables::token_slots(const SequenceId* sequences, const std::int64_t* starts, const std::int64_t* counts,
                                std::uint64_t count, std::int64_t* out) noexcept try {
  TM_TRY(check_lengths(starts, count));
  TM_TRY(check_lengths(counts, count));
  const std::lock_guard lock(mutex_);
  TM_TRY(find_all(sequences, count));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (static_cast<std::uint64_t>(starts[i] + counts[i]) <= sequences_[rows_[i]].tokens) continue;
    return Status::fail(Code::invalid_argument, "a sequence has fewer tokens than that");
  }
  const auto per_block = static_cast<std::int64_t>(block_tokens_);
  std::vector<std::int64_t> places;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (counts[i] == 0) continue;
    const std::vector<Record>& blocks = sequences_[rows_[i]].blocks;
    const auto first = static_cast<std::size_t>(starts[i] / per_block);
    const auto last = static_cast<std::size_t>((starts[i] + counts[i] - 1) / per_block);
    scratch_.clear();
    for (std::size_t at = first; at <= last; ++at) scratch_.push_back(blocks_.id_of(blocks[at]));
    places.resize(scratch_.size());
    TM_TRY(cache_->slots(scratch_.data(), scratch_.size(), places.data()));
    for (std::int64_t token = starts[i]; token < starts[i] + counts[i]; ++token) {
      *out++ = places[static_cast<std::size_t>(token / per_block) - first] * per_block + token % per_block;
    }
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

Status BlockTables::blocks(SequenceId sequence, std::vector<CacheBlockId>* ids) const noexcept try {
  const std::lock_guard lock(mutex_);
  std::uint32_t row = 0;
  TM_TRY(ids_.find(sequence, &row));
  for (const Record record : sequences_[row].blocks) ids->push_back(blocks_.id_of(record));
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

// --- Blocks that nobody holds --------------------------------------------------------------------------------------

// Those that somebody has pinned stay.
std::uint64_t BlockTables::evict_locked(std::uint64_t count) noexcept try {
  std::vector<Record> oldest;
  oldest.reserve(std::min(count, blocks_.resting_count()));
  blocks_.for_each_resting([&](Record record) {
    if (oldest.size() < count) oldest.push_back(record);
    return oldest.size() < count;
  });
  if (oldest.empty()) return 0;
  std::uint64_t ended = oldest.size();
  if (!end_records(oldest).ok()) {
    ended = 0;
    for (const Record record : oldest) ended += end_records({record}).ok() ? 1 : 0;
  }
  total_evicted_ += ended;
  return ended;
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint64_t BlockTables::evict(std::uint64_t count) noexcept {
  const std::lock_guard lock(mutex_);
  return evict_locked(count);
}

// First among the older half, then among all.
std::uint64_t BlockTables::evict_pages(std::uint64_t nbytes) noexcept try {
  const std::lock_guard lock(mutex_);
  std::uint64_t ended = 0;
  // Pages above the threshold of the cache go back by themselves.
  const std::uint64_t used = cache_->physical_bytes() - cache_->idle_bytes_now();
  for (const std::uint64_t share : {2, 1}) {
    const std::uint64_t now = cache_->physical_bytes() - cache_->idle_bytes_now();
    const std::uint64_t emptied = used - std::min(used, now);
    if (emptied >= nbytes) break;
    std::vector<CacheBlockId> candidates;
    std::unordered_map<CacheBlockId, Record> records;
    const std::uint64_t most = (blocks_.resting_count() + share - 1) / share;
    blocks_.for_each_resting([&](Record record) {
      if (candidates.size() == most) return false;
      candidates.push_back(blocks_.id_of(record));
      records.emplace(candidates.back(), record);
      return true;
    });
    std::vector<CacheBlockId> hints;
    if (!cache_->eviction_hints(nbytes - emptied, candidates.data(), candidates.size(), false, &hints).ok()) break;
    std::vector<Record> chosen;
    chosen.reserve(hints.size());
    for (const CacheBlockId id : hints) chosen.push_back(records.at(id));
    if (chosen.empty() || !end_records(chosen).ok()) continue;
    ended += chosen.size();
  }
  total_evicted_ += ended;
  return ended;
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint64_t BlockTables::release_idle(std::uint64_t wanted) noexcept {
  const std::uint64_t before = cache_->physical_bytes();
  if (evict_pages(wanted) == 0) return 0;
  (void)cache_->release_idle(wanted);
  const std::uint64_t after = cache_->physical_bytes();
  return before - std::min(before, after);
}

// --- Looking -------------------------------------------------------------------------------------------------------

BlockTablesStats BlockTables::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  return {ids_.live_count(),       blocks_.record_count() - blocks_.resting_count(),
          blocks_.resting_count(), asked_tokens_,
          matched_tokens_,         total_copied_,
          total_evicted_};
}

bool BlockTables::is_valid() const noexcept try {
  const std::lock_guard lock(mutex_);
  std::unordered_map<Record, std::uint32_t> holders;
  std::uint64_t live = 0;
  for (std::uint32_t row = 0; row < sequences_.size(); ++row) {
    const Sequence& sequence = sequences_[row];
    if (!ids_[row].live) {
      if (!sequence.blocks.empty()) return false;
      continue;
    }
    ++live;
    for (const Record record : sequence.blocks) ++holders[record];
    if (sequence.blocks.size() != blocks_for(sequence.tokens) || sequence.pending.size() >= block_tokens_) return false;
    if (sequence.links.size() * block_tokens_ + sequence.pending.size() > sequence.tokens) return false;
  }
  bool agree = blocks_.is_valid() && ids_.is_valid() && live == ids_.live_count();
  blocks_.for_each([&](Record record) {
    const auto found = holders.find(record);
    agree = agree && blocks_.holders(record) == (found == holders.end() ? 0 : found->second);
  });
  return agree;
} catch (const std::bad_alloc&) {
  return true;
}

}  // namespace tensormem

#include "pool/shared_blocks.hpp"

#include <algorithm>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

// A finalizer that spreads every bit over all others.
std::uint64_t mix(std::uint64_t value) noexcept {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebULL;
  return value ^ value >> 31;
}

}  // namespace

PrefixLink SharedBlocks::root(std::uint64_t salt) noexcept { return {mix(salt + 0x9e3779b97f4a7c15ULL), 0}; }

// --- Holders -------------------------------------------------------------------------------------------------------

void SharedBlocks::reserve(std::uint64_t count) {
  if (count <= free_) return;
  const std::uint64_t needed = records_.size() + count - free_;
  if (needed > records_.capacity()) records_.reserve(std::max<std::uint64_t>(needed, 2 * records_.capacity()));
}

SharedBlocks::Record SharedBlocks::add(CacheBlockId id) noexcept {
  auto record = static_cast<Record>(records_.size());
  if (first_free_ != kNone) {
    record = first_free_;
    first_free_ = records_[record].younger;
    records_[record].younger = kNone;
    free_ -= 1;
  } else {
    TM_ASSERT(records_.size() < records_.capacity());
    records_.emplace_back();
  }
  Entry& at = records_[record];
  at.id = id;
  at.holders = 1;
  at.live = true;
  live_ += 1;
  return record;
}

void SharedBlocks::hold(Record record) noexcept {
  if (records_[record].resting) unlist(record);
  records_[record].holders += 1;
}

void SharedBlocks::rest(Record record) noexcept {
  Entry& at = records_[record];
  TM_ASSERT(at.holders == 0 && !at.resting && is_known(record));
  at.resting = true;
  at.older = youngest_;
  at.younger = kNone;
  (youngest_ == kNone ? oldest_ : records_[youngest_].younger) = record;
  youngest_ = record;
  resting_ += 1;
}

void SharedBlocks::unlist(Record record) noexcept {
  Entry& at = records_[record];
  (at.older == kNone ? oldest_ : records_[at.older].younger) = at.younger;
  (at.younger == kNone ? youngest_ : records_[at.younger].older) = at.older;
  at.older = at.younger = kNone;
  at.resting = false;
  resting_ -= 1;
}

void SharedBlocks::end(Record record) noexcept {
  TM_ASSERT(records_[record].live && records_[record].holders == 0);
  if (records_[record].resting) unlist(record);
  forget(record);
  Entry& at = records_[record];
  at.live = false;
  at.younger = first_free_;
  first_free_ = record;
  free_ += 1;
  live_ -= 1;
}

// --- Contents ------------------------------------------------------------------------------------------------------

std::uint64_t SharedBlocks::hash(const PrefixLink& before, const std::int64_t* tokens) const noexcept {
  std::uint64_t value = before.hash;
  for (std::uint64_t i = 0; i < block_tokens_; ++i) value = mix(value + static_cast<std::uint64_t>(tokens[i]));
  return value;
}

SharedBlocks::Record SharedBlocks::find(const PrefixLink& before, const std::int64_t* tokens) const noexcept {
  const auto found = known_.find(hash(before, tokens));
  if (found == known_.end()) return kNone;
  const Entry& at = records_[found->second];
  const bool same = at.before == before.serial && std::equal(tokens, tokens + block_tokens_, at.tokens.get());
  return same ? found->second : kNone;
}

PrefixLink SharedBlocks::remember(Record record, const PrefixLink& before, const std::int64_t* tokens) {
  const Record same = find(before, tokens);
  if (same != kNone) return records_[same].link;
  Entry& at = records_[record];
  TM_ASSERT(at.tokens == nullptr);
  auto kept = std::make_unique<std::int64_t[]>(block_tokens_);
  std::copy_n(tokens, block_tokens_, kept.get());
  const PrefixLink link{hash(before, tokens), next_serial_++};
  if (known_.try_emplace(link.hash, record).second) {  // else others have the hash, and it is not found
    at.tokens = std::move(kept);
    at.link = link;
    at.before = before.serial;
  }
  return link;
}

void SharedBlocks::forget(Record record) noexcept {
  Entry& at = records_[record];
  if (at.tokens == nullptr) return;
  known_.erase(at.link.hash);
  at.tokens.reset();
}

// --- Looking -------------------------------------------------------------------------------------------------------

bool SharedBlocks::is_valid() const noexcept {
  std::uint64_t live = 0;
  std::uint64_t known = 0;
  std::uint64_t resting = 0;
  for (Record at = 0; at < records_.size(); ++at) {
    const Entry& entry = records_[at];
    live += entry.live ? 1 : 0;
    known += entry.tokens != nullptr ? 1 : 0;
    resting += entry.resting ? 1 : 0;
    if (entry.live && entry.resting != (entry.holders == 0)) return false;
    if (entry.resting && entry.tokens == nullptr) return false;
    if (entry.tokens == nullptr) continue;
    const auto found = known_.find(entry.link.hash);
    if (!entry.live || found == known_.end() || found->second != at) return false;
  }
  std::uint64_t listed = 0;
  for (Record at = oldest_; at != kNone; at = records_[at].younger) {
    if (!records_[at].resting || ++listed > resting) return false;
  }
  return live == live_ && known == known_.size() && resting == resting_ && listed == resting &&
         live + free_ == records_.size();
}

}  // namespace tensormem

// Owns: the blocks that sequences hold and how many hold each; and those that nobody holds, but that can be asked for
// again by what is in them: the tokens of the block, and of all blocks before it. These end the least recently used
// first. Contents are compared, not only their hashes: two different prefixes are never taken for one.
// Must not know: sequences, the cache. Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "pool/block_ids.hpp"

namespace tensormem {

// What stands before a block: every chain of contents has its own.
struct PrefixLink {
  std::uint64_t hash = 0;
  std::uint64_t serial = 0;  // of the block that ends it; 0 where it begins
};

class SharedBlocks {
 public:
  using Record = std::uint32_t;
  static constexpr Record kNone = ~0U;

  explicit SharedBlocks(std::uint64_t block_tokens) noexcept : block_tokens_(block_tokens) {}

  // Where contents with this salt begin: other salts never match.
  static PrefixLink root(std::uint64_t salt) noexcept;

  // Room for so many more, so that `add` cannot fail. Throws bad_alloc.
  void reserve(std::uint64_t count);
  // A block with one holder.
  Record add(CacheBlockId id) noexcept;
  void hold(Record record) noexcept;
  // One holder less, or again one more. Of one without holders either `end` or `rest` must follow.
  std::uint32_t drop(Record record) noexcept { return --records_[record].holders; }
  void undrop(Record record) noexcept { ++records_[record].holders; }
  // It can be found and waits, as the most recently used; or its block is gone.
  void rest(Record record) noexcept;
  void end(Record record) noexcept;

  CacheBlockId id_of(Record record) const noexcept { return records_[record].id; }
  std::uint32_t holders(Record record) const noexcept { return records_[record].holders; }
  bool is_resting(Record record) const noexcept { return records_[record].resting; }
  bool is_known(Record record) const noexcept { return records_[record].tokens != nullptr; }
  const std::int64_t* tokens_of(Record record) const noexcept { return records_[record].tokens.get(); }
  const PrefixLink& link_of(Record record) const noexcept { return records_[record].link; }

  // The block with these tokens behind this prefix, or kNone.
  Record find(const PrefixLink& before, const std::int64_t* tokens) const noexcept;
  // The block has these tokens, which do not change any more. Gives the link behind it: of another block with the same
  // contents, if there is one. Throws bad_alloc.
  PrefixLink remember(Record record, const PrefixLink& before, const std::int64_t* tokens);
  // Its contents change, or it ends.
  void forget(Record record) noexcept;

  std::uint64_t resting_count() const noexcept { return resting_; }
  std::uint64_t record_count() const noexcept { return live_; }
  // The least recently used first, until `visit(record)` is false; the visitor must not change the list.
  template <typename Visit>
  void for_each_resting(Visit visit) const {
    for (Record at = oldest_; at != kNone && visit(at); at = records_[at].younger) {
    }
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (Record at = 0; at < records_.size(); ++at) {
      if (records_[at].live) visit(at);
    }
  }

  bool is_valid() const noexcept;

 private:
  struct Entry {
    CacheBlockId id = 0;
    std::unique_ptr<std::int64_t[]> tokens;  // if it can be found
    PrefixLink link;                         // behind it
    std::uint64_t before = 0;                // the serial of what stands before it
    std::uint32_t holders = 0;
    Record younger = kNone;  // of those that rest; of free entries, the next one
    Record older = kNone;
    bool live = false;
    bool resting = false;
  };

  std::uint64_t hash(const PrefixLink& before, const std::int64_t* tokens) const noexcept;
  void unlist(Record record) noexcept;

  const std::uint64_t block_tokens_;
  std::vector<Entry> records_;
  std::unordered_map<std::uint64_t, Record> known_;  // by the hash of their links
  Record first_free_ = kNone;
  std::uint64_t free_ = 0;
  std::uint64_t live_ = 0;
  Record oldest_ = kNone;
  Record youngest_ = kNone;
  std::uint64_t resting_ = 0;
  std::uint64_t next_serial_ = 1;
};

}  // namespace tensormem

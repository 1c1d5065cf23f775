// Owns: the ids of the blocks of one cache. An id is a row of a table, the number of times the row was used, and the
// number of the cache, in 63 bits: a freed id is told from its successor, and an id of one cache from that of another.
// A row whose count is used up is never used again, so an id never comes twice.
// Must not know: what a place is. Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interned.hpp"
#include "base/status.hpp"

namespace tensormem {

using CacheBlockId = std::uint64_t;

struct BlockRow {
  std::uint32_t place = 0;  // of a free row: the next free one, plus one
  std::uint32_t pins = 0;
  std::uint32_t generation = 0;
  TagId tag = kUntagged;
  bool live = false;
  bool marked = false;  // seen by the call under way
  bool used = false;    // by a stream: the cache has the events
};

class BlockIds {
 public:
  // What is said of an id that was never given out, and of one that was freed.
  explicit BlockIds(const char* foreign = "this cache never gave out the id",
                    const char* freed = "the id was freed before") noexcept;

  // Room for so many more, so that `make` cannot fail. Throws bad_alloc; false if there are too many.
  bool reserve(std::uint64_t count);
  // The row of a new block; `id_of` gives its id.
  std::uint32_t make(std::uint32_t place, TagId tag) noexcept;
  void drop(std::uint32_t row) noexcept;
  // The rows of a batch, each marked until `unmark`: an id that comes twice is refused, and nothing is marked then.
  Status mark_all(const CacheBlockId* ids, std::uint64_t count, std::uint32_t* rows) noexcept;
  void unmark(const std::uint32_t* rows, std::uint64_t count) noexcept {
    for (std::uint64_t i = 0; i < count; ++i) rows_[rows[i]].marked = false;
  }

  CacheBlockId id_of(std::uint32_t row) const noexcept {
    return static_cast<CacheBlockId>(number_) << kNumberShift |
           static_cast<CacheBlockId>(rows_[row].generation) << kGenerationShift | row;
  }
  // `foreign_block` or `use_after_free`, with the id as the fact.
  Status find(CacheBlockId id, std::uint32_t* row) const noexcept {
    const std::uint64_t index = id & (kMaxRows - 1);
    if (index >= rows_.size() || !rows_[index].live || id_of(static_cast<std::uint32_t>(index)) != id) [[unlikely]]
      return refuse(id);
    *row = static_cast<std::uint32_t>(index);
    return {};
  }
  BlockRow& operator[](std::uint32_t row) noexcept { return rows_[row]; }
  const BlockRow& operator[](std::uint32_t row) const noexcept { return rows_[row]; }
  std::uint64_t live_count() const noexcept { return live_; }
  std::uint64_t row_count() const noexcept { return rows_.size(); }
  bool is_valid() const noexcept;

 private:
  static constexpr unsigned kGenerationShift = 28;
  static constexpr unsigned kNumberShift = 48;
  static constexpr std::uint64_t kMaxRows = 1ULL << kGenerationShift;
  static constexpr std::uint32_t kMaxGeneration = (1U << (kNumberShift - kGenerationShift)) - 1;
  static constexpr std::uint32_t kNumbers = 1U << 15;  // bit 63 stays clear: ids are int64 elsewhere

  Status refuse(CacheBlockId id) const noexcept;

  const std::uint32_t number_;
  const char* const foreign_;
  const char* const freed_;
  std::uint32_t first_free_ = 0;  // plus one
  std::uint64_t free_ = 0;
  std::uint64_t live_ = 0;
  std::vector<BlockRow> rows_;
};

}  // namespace tensormem

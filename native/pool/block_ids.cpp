#include "pool/block_ids.hpp"

#include <algorithm>
#include <atomic>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

std::atomic<std::uint32_t> g_caches{0};

}  // namespace

BlockIds::BlockIds(const char* foreign, const char* freed) noexcept
    : number_(1 + g_caches.fetch_add(1, std::memory_order_relaxed) % (kNumbers - 1)),
      foreign_(foreign),
      freed_(freed) {}

bool BlockIds::reserve(std::uint64_t count) {
  if (count <= free_) return true;
  const std::uint64_t needed = rows_.size() + count - free_;
  if (needed > kMaxRows) return false;
  if (needed > rows_.capacity()) rows_.reserve(std::max<std::uint64_t>(needed, 2 * rows_.capacity()));
  return true;
}

std::uint32_t BlockIds::make(std::uint32_t place, TagId tag) noexcept {
  std::uint32_t row = static_cast<std::uint32_t>(rows_.size());
  if (first_free_ != 0) {
    row = first_free_ - 1;
    first_free_ = rows_[row].place;
    free_ -= 1;
  } else {
    TM_ASSERT(rows_.size() < rows_.capacity());
    rows_.emplace_back();
  }
  BlockRow& at = rows_[row];
  at.place = place;
  at.tag = tag;
  at.generation += 1;
  at.live = true;
  live_ += 1;
  return row;
}

void BlockIds::drop(std::uint32_t row) noexcept {
  BlockRow& at = rows_[row];
  TM_ASSERT(at.live && at.pins == 0);
  at.live = at.marked = at.used = false;
  live_ -= 1;
  if (at.generation == kMaxGeneration) return;
  at.place = first_free_;
  first_free_ = row + 1;
  free_ += 1;
}

// A row is live, in the list of free ones, or used up.
bool BlockIds::is_valid() const noexcept {
  std::uint64_t free = 0;
  for (std::uint32_t next = first_free_; next != 0; next = rows_[next - 1].place) {
    if (next > rows_.size() || rows_[next - 1].live || ++free > rows_.size()) return false;
  }
  std::uint64_t live = 0;
  std::uint64_t used_up = 0;
  for (const BlockRow& row : rows_) {
    live += row.live ? 1 : 0;
    used_up += !row.live && row.generation == kMaxGeneration ? 1 : 0;
    if (!row.live && (row.pins != 0 || row.used)) return false;
  }
  return free == free_ && live == live_ && live + free + used_up == rows_.size();
}

Status BlockIds::mark_all(const CacheBlockId* ids, std::uint64_t count, std::uint32_t* rows) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    Status status = find(ids[i], &rows[i]);
    if (status.ok() && rows_[rows[i]].marked) [[unlikely]]
      status = Status::fail(Code::use_after_free, "the id is in the batch twice", ids[i], 0);
    if (!status.ok()) [[unlikely]] {
      unmark(rows, i);
      return status;
    }
    rows_[rows[i]].marked = true;
  }
  return {};
}

Status BlockIds::refuse(CacheBlockId id) const noexcept {
  const std::uint64_t index = id & (kMaxRows - 1);
  const std::uint64_t generation = id >> kGenerationShift & kMaxGeneration;
  if (id >> kNumberShift != number_ || index >= rows_.size() || generation == 0 ||
      generation > rows_[index].generation) {
    return Status::fail(Code::foreign_block, foreign_, id, 0);
  }
  return Status::fail(Code::use_after_free, freed_, id, 0);
}

}  // namespace tensormem

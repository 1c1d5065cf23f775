// Blocks, pins and pages. Streams have a file of their own beside this one, and so has compaction.
#include "pool/block_cache.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/ending.hpp"
#include "base/invariant.hpp"
#include "pool/block_cache_parts.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kSmallestPage = 64ULL << 10;
constexpr std::uint64_t kGranule = 256;     // blocks begin at multiples of it
constexpr std::uint64_t kWasteDivisor = 8;  // a frame wastes at most this part of itself, where that can be
constexpr std::uint64_t kLongestFrame = 8;  // times the pages that one block needs

Status no_memory_for_books() {
  return Status::fail(Code::out_of_memory, "no memory for the books of a block cache", sizeof(BlockCache));
}

}  // namespace

// --- The beginning and the end -------------------------------------------------------------------------------------

// The shortest frame that wastes little; failing that, the one that wastes least.
BlockCache::Shape BlockCache::choose_shape(std::uint64_t block_bytes, std::uint64_t page_bytes) noexcept {
  const std::uint64_t stride = align_up(block_bytes, kGranule);
  const std::uint64_t least = (stride + page_bytes - 1) / page_bytes;
  Shape best;
  double best_waste = 1;
  for (std::uint64_t pages = least; pages <= least * kLongestFrame; ++pages) {
    const Shape shape{stride, pages, pages * page_bytes / stride};
    const std::uint64_t waste = pages * page_bytes - shape.blocks * stride;
    if (waste * kWasteDivisor <= pages * page_bytes) return shape;
    const double part = static_cast<double>(waste) / static_cast<double>(pages * page_bytes);
    if (part < best_waste) {
      best_waste = part;
      best = shape;
    }
  }
  return best;
}

Status BlockCache::check(Driver& driver, const BlockCacheOptions& options, Shape* shape) noexcept {
  Granularity granularity;
  TM_TRY(driver.granularity(options.device, &granularity));
  const std::uint64_t least = std::max(kSmallestPage, granularity.minimum);
  if (!is_power_of_two(options.page_bytes) || options.page_bytes < least) {
    return Status::fail(Code::invalid_page_size, "", options.page_bytes, least);
  }
  if (options.capacity == 0 || options.capacity > kNoOverflowLimit / 2) {
    return Status::fail(Code::invalid_size, "the capacity of a block cache", options.capacity);
  }
  if (options.block_bytes == 0 || options.block_bytes > options.capacity) {
    return Status::fail(Code::invalid_size, options.block_bytes == 0 ? "blocks of no bytes" : "larger than the cache",
                        options.block_bytes);
  }
  *shape = choose_shape(options.block_bytes, options.page_bytes);
  return {};
}

Status BlockCache::open(Driver& driver, const BlockCacheOptions& options, BudgetPtr budget,
                        std::shared_ptr<BlockCache>* cache) noexcept try {
  Shape shape;
  TM_TRY(check(driver, options, &shape));
  const std::uint64_t frame_bytes = shape.pages * options.page_bytes;
  const std::uint64_t frames = (options.capacity + frame_bytes - 1) / frame_bytes;
  if (frames > BlockFrames::kMaxPlaces / shape.blocks) {
    return Status::fail(Code::invalid_size, "more blocks than a cache can count", options.capacity);
  }
  const PageCacheOptions ahead{options.ahead_pages, options.ahead_pages, options.background};
  std::unique_ptr<ElasticPages> pages;
  TM_TRY(ElasticPages::open(driver, options.device, options.page_bytes, frames * shape.pages, ahead, budget, &pages));
  rename_reporter(pages->id(), "BlockCache");
  std::shared_ptr<BlockCache> made(new BlockCache(driver, options, shape, std::move(budget), std::move(pages)));
  made->budget_->enlist(*made, &made->membership_);
  *cache = std::move(made);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

BlockCache::BlockCache(Driver& driver, const BlockCacheOptions& options, const Shape& shape, BudgetPtr budget,
                       std::unique_ptr<ElasticPages> pages)
    : driver_(driver),
      device_(options.device),
      block_bytes_(options.block_bytes),
      shape_(shape),
      budget_(std::move(budget)),
      order_(driver, options.device),
      pages_(std::move(pages)),
      frames_(pages_->page_count() / shape.pages, static_cast<std::uint32_t>(shape.blocks)),
      idle_bytes_(options.idle_bytes) {}

BlockCache::~BlockCache() {
  TM_WALK(is_valid());
  membership_.end();
  // Work on a stream may still use the memory. What cannot be waited for is unmapped all the same, but for work that
  // outlives the process.
  bool in_use = false;
  try {
    Uses until;
    retired_.append_awaited(&until);
    for (const auto& [row, uses] : uses_) until.insert(until.end(), uses.begin(), uses.end());
    for (const Use& use : until) in_use = !order_.synchronize({use}).ok() || in_use;
  } catch (const std::bad_alloc&) {
  }
  for (std::uint32_t row = 0; row < ids_.row_count(); ++row) {
    if (ids_[row].live) report_end(row);
  }
  if (in_use && is_ending()) (void)pages_.release();
}

// --- Frames --------------------------------------------------------------------------------------------------------

Status BlockCache::frames_needed(std::uint64_t count, std::uint64_t* frames) const noexcept {
  const std::uint64_t free = frames_.free_count();
  *frames = count <= free ? 0 : (count - free + shape_.blocks - 1) / shape_.blocks;
  if (*frames <= frames_.frame_count() - frames_.backed_count()) return {};
  return Status::fail(Code::out_of_virtual_memory, "the cache has no free addresses for so many blocks",
                      count > kNoOverflowLimit / block_bytes_ ? kNoOverflowLimit : count * block_bytes_);
}

// The pages of the lowest frames without memory.
void BlockCache::wish_for(std::uint64_t frames, std::vector<std::uint64_t>* homes) const {
  homes->reserve(frames * shape_.pages);
  std::uint64_t frame = frames_.next_without_memory(0);
  for (; frames > 0; --frames, frame = frames_.next_without_memory(frame + 1)) {
    for (std::uint64_t i = 0; i < shape_.pages; ++i) homes->push_back(frame * shape_.pages + i);
  }
}

Status BlockCache::back_one(std::uint64_t frame, LoosePages& loose) noexcept {
  TM_TRY(pages_->map(frame * shape_.pages, loose.first(), shape_.pages));
  loose.used(shape_.pages);
  frames_.back(frame);
  return {};
}

// All of them or none: what was mapped before a refusal is taken out again, or stays as empty pages if even that is
// refused.
Status BlockCache::back_frames(std::uint64_t frames, LoosePages& loose) {
  std::vector<std::uint64_t> backed;
  backed.reserve(frames);
  std::uint64_t frame = frames_.next_without_memory(0);
  for (; backed.size() < frames; frame = frames_.next_without_memory(frame + 1)) {
    Status status = back_one(frame, loose);
    if (status.ok()) {
      backed.push_back(frame);
      continue;
    }
    for (const std::uint64_t undone : backed) {
      if (pages_->unmap(undone * shape_.pages, shape_.pages, &loose.list()).ok()) frames_.unback(undone);
    }
    return status;
  }
  note_peak();
  return {};
}

// Takes the memory from behind idle frames, the highest addresses first, in runs. What the driver refuses stays idle.
void BlockCache::unback_idle(std::uint64_t keep_bytes, LoosePages& loose) noexcept {
  const std::uint64_t keep = keep_bytes / frame_bytes();
  if (frames_.idle_count() <= keep) return;
  std::uint64_t frame = frames_.next_idle(0);
  for (std::uint64_t kept = 0; kept < keep; ++kept) frame = frames_.next_idle(frame + 1);
  while (frame != BlockFrames::kNone) {
    std::uint64_t end = frame + 1;
    while (end < frames_.frame_count() && frames_.next_idle(end) == end) ++end;
    if (pages_->unmap(frame * shape_.pages, (end - frame) * shape_.pages, &loose.list()).ok()) {
      for (std::uint64_t gone = frame; gone < end; ++gone) frames_.unback(gone);
    }
    frame = frames_.next_idle(end);
  }
}

void BlockCache::note_peak() noexcept { peak_physical_bytes_ = std::max(peak_physical_bytes_, physical_bytes()); }

// --- Blocks --------------------------------------------------------------------------------------------------------

void BlockCache::hand_out(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const Place place = frames_.take();
    const std::uint32_t row = ids_.make(place, tag);
    frames_.set_owner(place, row + 1);
    ids[i] = ids_.id_of(row);
    report_allocate(pages_->id(), address_of(place), block_bytes_, ids[i], tag);
  }
  total_allocated_ += count;
}

// Everything with the lock if the pages it needs are at hand; otherwise they are got without it, and all is tried anew.
Status BlockCache::allocate(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept try {
  LoosePages loose(*pages_);
  while (true) {
    std::vector<std::uint64_t> homes;
    {
      const std::lock_guard lock(mutex_);
      (void)reap_locked(loose).ok();  // told by reap_pending itself
      std::uint64_t frames = 0;
      TM_TRY(frames_needed(count, &frames));
      if (frames * shape_.pages <= loose.size()) {
        if (!ids_.reserve(count)) return Status::fail(Code::out_of_memory, "the ids of the cache are used up", count);
        TM_TRY(back_frames(frames, loose));
        hand_out(count, tag, ids);
        return {};
      }
      wish_for(frames, &homes);
    }
    TM_TRY(loose.take_up_to(std::move(homes)));
  }
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status BlockCache::find_all(const CacheBlockId* ids, std::uint64_t count, std::vector<std::uint32_t>* rows) {
  rows->resize(count);
  for (std::uint64_t i = 0; i < count; ++i) TM_TRY(ids_.find(ids[i], &(*rows)[i]));
  return {};
}

// Marks are gone again when it returns.
Status BlockCache::find_once(const CacheBlockId* ids, std::uint64_t count, std::vector<std::uint32_t>* rows) {
  TM_TRY(find_all(ids, count, rows));
  Status status;
  std::uint64_t seen = 0;
  for (; seen < count && status.ok(); ++seen) {
    BlockRow& at = ids_[(*rows)[seen]];
    if (at.marked) {
      status = Status::fail(Code::use_after_free, "the id is in the batch twice", ids[seen], address_of(at.place));
      break;
    }
    at.marked = true;
  }
  for (std::uint64_t i = 0; i < seen; ++i) ids_[(*rows)[i]].marked = false;
  return status;
}

Status BlockCache::addresses(const CacheBlockId* ids, std::uint64_t count, std::uint64_t* addresses) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t row = 0;
    TM_TRY(ids_.find(ids[i], &row));
    addresses[i] = address_of(ids_[row].place);
  }
  return {};
}

// --- Pins ----------------------------------------------------------------------------------------------------------

void BlockCache::pin_row(std::uint32_t row) noexcept {
  if (ids_[row].pins++ != 0) return;
  frames_.add_fixed(ids_[row].place);
  pinned_blocks_ += 1;
}

void BlockCache::unpin_row(std::uint32_t row) noexcept {
  if (--ids_[row].pins != 0) return;
  frames_.drop_fixed(ids_[row].place);
  pinned_blocks_ -= 1;
}

Status BlockCache::pin(const CacheBlockId* ids, std::uint64_t count) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(find_all(ids, count, &scratch_));
  for (const std::uint32_t row : scratch_) pin_row(row);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

Status BlockCache::unpin(const CacheBlockId* ids, std::uint64_t count) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(find_all(ids, count, &scratch_));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (ids_[scratch_[i]].pins != 0) {
      unpin_row(scratch_[i]);
      continue;
    }
    for (; i > 0; --i) pin_row(scratch_[i - 1]);
    return Status::fail(Code::invalid_argument, "a block is not pinned so often; nothing was changed");
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// --- Memory that is not in use -------------------------------------------------------------------------------------

std::uint64_t BlockCache::trim(std::uint64_t keep_bytes) noexcept {
  const std::uint64_t before = pages_->cache().held_pages();
  LoosePages loose(*pages_);
  std::uint64_t kept = 0;
  {
    const std::lock_guard lock(mutex_);
    (void)reap_locked(loose).ok();
    unback_idle(keep_bytes, loose);
    kept = frames_.idle_count() * frame_bytes();
  }
  loose.give_back();
  (void)pages_->cache().trim(keep_bytes > kept ? (keep_bytes - kept) / page_bytes() : 0);
  const std::uint64_t after = pages_->cache().held_pages();
  return before > after ? before - after : 0;
}

std::uint64_t BlockCache::release_idle(std::uint64_t wanted) noexcept {
  std::uint64_t released = pages_->cache().release(wanted);
  if (released >= wanted) return released;
  LoosePages loose(*pages_);
  {
    const std::lock_guard lock(mutex_);
    (void)reap_locked(loose).ok();
    const std::uint64_t idle = frames_.idle_count() * frame_bytes();
    const std::uint64_t frames = (wanted - released + frame_bytes() - 1) / frame_bytes();
    unback_idle(idle - std::min(idle, frames * frame_bytes()), loose);
  }
  // Some may be above what the cache keeps, and are gone at once.
  const std::uint64_t before = loose.size() * page_bytes();
  loose.give_back();
  (void)pages_->cache().release(before);
  return released + before;
}

void BlockCache::set_idle_bytes(std::uint64_t idle_bytes) noexcept {
  LoosePages loose(*pages_);
  const std::lock_guard lock(mutex_);
  idle_bytes_ = idle_bytes;
  unback_idle(idle_bytes_, loose);
}

// --- Looking -------------------------------------------------------------------------------------------------------

BlockCacheStats BlockCache::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  BlockCacheStats stats;
  stats.block_bytes = block_bytes_;
  stats.page_bytes = page_bytes();
  stats.pages_per_frame = shape_.pages;
  stats.blocks_per_frame = shape_.blocks;
  stats.capacity_blocks = frames_.frame_count() * shape_.blocks;
  stats.live_blocks = ids_.live_count();
  stats.retired_blocks = retired_blocks_;
  stats.pinned_blocks = pinned_blocks_;
  stats.used_pages = (frames_.backed_count() - frames_.idle_count()) * shape_.pages;
  stats.floor_pages = floor_frames() * shape_.pages;
  stats.cached_pages = frames_.idle_count() * shape_.pages + pages_->cache().cached_pages();
  stats.physical_bytes = physical_bytes();
  stats.peak_physical_bytes = std::max(peak_physical_bytes_, stats.physical_bytes);
  stats.created_pages = pages_->cache().created_pages();
  stats.total_allocated = total_allocated_;
  stats.total_freed = total_freed_;
  stats.total_moved = total_moved_;
  return stats;
}

bool BlockCache::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t live = 0;
  std::uint64_t retired = 0;
  std::uint64_t pinned = 0;
  bool agree = frames_.is_valid() && pages_->is_valid() && ids_.is_valid() && retired_.is_valid();
  for (std::uint64_t frame = frames_.next_backed(0); frame != BlockFrames::kNone;
       frame = frames_.next_backed(frame + 1)) {
    agree = agree && pages_->mapped().all_set(frame * shape_.pages, shape_.pages);
    std::uint64_t fixed = 0;
    frames_.for_each_taken(frame, [&](Place place) {
      const std::uint32_t owner = frames_.owner(place);
      if (owner == kRetired) {
        ++retired;
        ++fixed;
        return;
      }
      const BlockRow& row = ids_[owner - 1];
      ++live;
      pinned += row.pins != 0 ? 1 : 0;
      fixed += row.pins != 0 ? 1 : 0;
      agree = agree && row.live && row.place == place && !row.marked && row.used == uses_.contains(owner - 1);
    });
    agree = agree && fixed == frames_.fixed_in(frame);
  }
  return agree && live == ids_.live_count() && retired == retired_blocks_ && pinned == pinned_blocks_ &&
         live + retired == frames_.taken_count() && pages_->mapped().count() == frames_.backed_count() * shape_.pages;
}

}  // namespace tensormem

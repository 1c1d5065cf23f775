// Blocks, pins and pages. Streams have a file of their own beside this one, and so has compaction.
#include "pool/block_cache.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/ending.hpp"
#include "base/invariant.hpp"
#include "pool/block_cache_parts.hpp"
#include "trace/record.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kSmallestPage = 64ULL << 10;
constexpr std::uint64_t kMostPlanes = 1ULL << 16;
constexpr std::uint64_t kGranule = 256;      // blocks begin at multiples of it
constexpr std::uint64_t kWasteDivisor = 8;   // a frame wastes at most this part of itself, where that can be
constexpr std::uint64_t kLongestFrame = 16;  // times the pages that one block needs

Status no_memory_for_books() {
  return Status::fail(Code::out_of_memory, "no memory for the books of a block cache", sizeof(BlockCache));
}

}  // namespace

// --- The beginning and the end -------------------------------------------------------------------------------------

// The shortest frame that wastes little; failing that, the one that wastes least. A frame is cut evenly, into parts
// that begin at multiples of the granule: with a page of a power of two, sixteen pages can be cut so that an eighth is
// the most that is wasted.
BlockCache::Shape BlockCache::choose_shape(std::uint64_t block_bytes, std::uint64_t page_bytes) noexcept {
  const std::uint64_t granules = align_up(block_bytes, kGranule) / kGranule;
  const std::uint64_t page_granules = page_bytes / kGranule;
  const std::uint64_t least = (granules + page_granules - 1) / page_granules;
  Shape best;
  double best_waste = 1;
  for (std::uint64_t pages = least; pages <= least * kLongestFrame; ++pages) {
    const std::uint64_t frame = pages * page_granules;
    std::uint64_t blocks = frame / granules;
    while (frame % blocks != 0) --blocks;
    const std::uint64_t waste = frame - blocks * granules;
    const Shape shape{frame / blocks * kGranule, pages, blocks};
    if (waste * kWasteDivisor <= frame) return shape;
    const double part = static_cast<double>(waste) / static_cast<double>(frame);
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
  if (options.block_bytes == 0 || options.block_bytes > options.capacity / std::max<std::uint64_t>(options.planes, 1)) {
    return Status::fail(Code::invalid_size, options.block_bytes == 0 ? "blocks of no bytes" : "larger than the cache",
                        options.block_bytes);
  }
  if (options.planes == 0 || options.planes > kMostPlanes) {
    return Status::fail(Code::invalid_argument, "a block cache has from 1 to 65,536 planes");
  }
  *shape = choose_shape(options.block_bytes, options.page_bytes);
  return {};
}

Status BlockCache::open(Driver& driver, const BlockCacheOptions& options, BudgetPtr budget,
                        std::shared_ptr<BlockCache>* cache) noexcept try {
  Shape shape;
  TM_TRY(check(driver, options, &shape));
  const std::uint64_t frame_bytes = shape.pages * options.planes * options.page_bytes;
  const std::uint64_t frames = (options.capacity + frame_bytes - 1) / frame_bytes;
  if (frames > BlockFrames::kMaxPlaces / shape.blocks) {
    return Status::fail(Code::invalid_size, "more blocks than a cache can count", options.capacity);
  }
  const PageCacheOptions ahead{options.ahead_pages, options.ahead_pages, options.background};
  std::unique_ptr<ElasticPages> pages;
  TM_TRY(ElasticPages::open(driver, options.device, options.page_bytes, frames * shape.pages * options.planes, ahead,
                            budget, &pages));
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
      planes_(options.planes),
      shape_(shape),
      budget_(std::move(budget)),
      order_(driver, options.device),
      pages_(std::move(pages)),
      frames_(pages_->page_count() / shape.pages / options.planes, static_cast<std::uint32_t>(shape.blocks)),
      idle_bytes_(options.idle_bytes),
      demand_(options.demand_blocks) {}

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

Status BlockCache::wait_before_end(const Wait& wait) noexcept try {
  Uses until;
  {
    const std::lock_guard lock(mutex_);
    retired_.append_awaited(&until);
    for (const auto& [row, uses] : uses_) until.insert(until.end(), uses.begin(), uses.end());
  }
  return order_.wait_before_end(until, wait);
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to list what a cache waits for", sizeof(Use));
}

// --- Frames --------------------------------------------------------------------------------------------------------

Status BlockCache::frames_needed(std::uint64_t count, std::uint64_t* frames) const noexcept {
  const std::uint64_t free = frames_.free_count();
  *frames = count <= free ? 0 : (count - free + shape_.blocks - 1) / shape_.blocks;
  if (*frames <= frames_.frame_count() - frames_.backed_count()) return {};
  return Status::fail(Code::out_of_virtual_memory, "the cache has no free addresses for so many blocks",
                      count > kNoOverflowLimit / block_bytes_ ? kNoOverflowLimit : count * block_bytes_);
}

BlockCache::Run BlockCache::next_run(std::uint64_t from, std::uint64_t most) const noexcept {
  const std::uint64_t first = frames_.next_without_memory(from);
  return {first, std::min({most, frames_.next_backed(first) - first, frames_.frame_count() - first})};
}

// The pages of the lowest frames without memory, in the order in which they are mapped.
void BlockCache::wish_for(std::uint64_t frames, std::vector<std::uint64_t>* homes) const {
  homes->reserve(frames * frame_pages());
  for (std::uint64_t at = 0; frames > 0;) {
    const Run run = next_run(at, frames);
    for (std::uint64_t plane = 0; plane < planes_; ++plane) {
      for (std::uint64_t i = 0; i < run.count * shape_.pages; ++i) homes->push_back(page_of(run.first, plane) + i);
    }
    frames -= run.count;
    at = run.first + run.count;
  }
}

// In every plane, where nothing is mapped yet.
Status BlockCache::map_run(const Run& run, LoosePages& loose) noexcept {
  for (std::uint64_t plane = 0; plane < planes_; ++plane) {
    const std::uint64_t begin = page_of(run.first, plane);
    const std::uint64_t end = begin + run.count * shape_.pages;
    for (std::uint64_t first = pages_->mapped().next_clear(begin); first < end;) {
      const std::uint64_t stop = std::min(pages_->mapped().next_set(first), end);
      TM_TRY(pages_->map(first, loose.first(), stop - first));
      loose.used(stop - first);
      first = pages_->mapped().next_clear(stop);
    }
  }
  return {};
}

// All of the run or nothing, but for pages that the driver refuses to take out again: those stay where they are, and
// are found there the next time.
Status BlockCache::back_run(const Run& run, LoosePages& loose) {
  Status status = map_run(run, loose);
  if (!status.ok()) {
    unback_run(run, loose);
    return status;
  }
  for (std::uint64_t i = 0; i < run.count; ++i) frames_.back(run.first + i);
  return {};
}

// All of them or none: what was mapped before a refusal is taken out again, or stays as empty pages if even that is
// refused.
Status BlockCache::back_frames(std::uint64_t frames, LoosePages& loose) {
  std::vector<Run> backed;
  backed.reserve(frames);
  for (std::uint64_t at = 0; frames > 0;) {
    const Run run = next_run(at, frames);
    Status status = back_run(run, loose);
    if (!status.ok()) {
      for (const Run& undone : backed) unback_run(undone, loose);
      return status;
    }
    backed.push_back(run);
    frames -= run.count;
    at = run.first + run.count;
  }
  note_peak();
  return {};
}

// The frames of the run have memory, or a part of it. Where the driver refuses they keep all that they had: what went
// before is put back, and if even that is refused the frames count as without memory, and keep the rest.
void BlockCache::unback_run(const Run& run, LoosePages& loose) noexcept {
  const bool was_backed = frames_.is_backed(run.first);
  bool refused = false;
  std::uint64_t gone = 0;  // planes
  for (std::uint64_t plane = 0; plane < planes_ && !(refused && was_backed); ++plane) {
    const std::uint64_t begin = page_of(run.first, plane);
    const std::uint64_t end = begin + run.count * shape_.pages;
    for (std::uint64_t first = pages_->mapped().next_set(begin); first < end;) {
      const std::uint64_t stop = std::min(pages_->mapped().next_clear(first), end);
      refused = !pages_->unmap(first, stop - first, &loose.list()).ok() || refused;
      first = pages_->mapped().next_set(stop);
    }
    gone += refused ? 0 : 1;
  }
  if (!was_backed) return;
  const std::uint64_t length = run.count * shape_.pages;
  while (refused && gone > 0) {
    std::vector<Page>& list = loose.list();
    if (!pages_->map(page_of(run.first, gone - 1), list.data() + list.size() - length, length).ok()) break;
    list.resize(list.size() - length);
    --gone;
  }
  if (refused && gone == 0) return;
  for (std::uint64_t i = 0; i < run.count; ++i) frames_.unback(run.first + i);
}

// Whole frames: what the blocks that were in use of late would take, packed, beyond those in use now.
std::uint64_t BlockCache::keep_bytes() const noexcept {
  if (!demand_.remembers()) return idle_bytes_;
  const auto taken = static_cast<double>(frames_.taken_count());
  const auto blocks = static_cast<std::uint64_t>(demand_.spare(taken));
  return std::min(idle_bytes_, (blocks + shape_.blocks - 1) / shape_.blocks * frame_bytes());
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
    unback_run({frame, end - frame}, loose);
    frame = frames_.next_idle(end);
  }
}

void BlockCache::note_peak() noexcept { peak_physical_bytes_ = std::max(peak_physical_bytes_, physical_bytes()); }

// --- Blocks --------------------------------------------------------------------------------------------------------

void BlockCache::hand_out(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept {
  frames_.take(count, scratch_.data());
  const bool told = trace_is_on();
  for (std::uint64_t i = 0; i < count; ++i) {
    const Place place = scratch_[i];
    const std::uint32_t row = ids_.make(place, tag);
    frames_.set_owner(place, row + 1);
    ids[i] = ids_.id_of(row);
    if (told) report_begin(row);
  }
  total_allocated_ += count;
  demand_.note_use(static_cast<double>(frames_.taken_count()));
}

bool BlockCache::try_allocate(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept try {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || trace_is_on() || suspended_ || !retired_.empty()) return false;
  if (count > frames_.free_count()) return false;
  if (!ids_.reserve(count)) return false;
  scratch_.resize(count);
  hand_out(count, tag, ids);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// Everything with the lock if the pages it needs are at hand; otherwise they are got without it, and all is tried anew.
Status BlockCache::allocate(std::uint64_t count, TagId tag, CacheBlockId* ids) noexcept try {
  LoosePages loose(*pages_);
  while (true) {
    std::vector<std::uint64_t> homes;
    {
      const std::lock_guard lock(mutex_);
      TM_TRY(check_awake());
      (void)reap_locked(loose).ok();  // told by reap_pending itself
      std::uint64_t frames = 0;
      TM_TRY(frames_needed(count, &frames));
      if (frames * frame_pages() <= loose.size()) {
        if (!ids_.reserve(count)) return Status::fail(Code::out_of_memory, "the ids of the cache are used up", count);
        scratch_.resize(count);
        if (frames != 0) TM_TRY(back_frames(frames, loose));
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

Status BlockCache::addresses(const CacheBlockId* ids, std::uint64_t count, std::uint64_t* addresses) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t row = 0;
    TM_TRY(ids_.find(ids[i], &row));
    addresses[i] = address_of(ids_[row].place);
  }
  return {};
}

template <typename Slot>
Status BlockCache::write_slots(const CacheBlockId* ids, std::uint64_t count, Slot* slots) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t row = 0;
    TM_TRY(ids_.find(ids[i], &row));
    slots[i] = static_cast<Slot>(ids_[row].place);
  }
  return {};
}

Status BlockCache::slots(const CacheBlockId* ids, std::uint64_t count, std::int32_t* slots) const noexcept {
  return write_slots(ids, count, slots);
}

Status BlockCache::slots(const CacheBlockId* ids, std::uint64_t count, std::int64_t* slots) const noexcept {
  return write_slots(ids, count, slots);
}

Status BlockCache::blocks_at(const std::int64_t* slots, std::uint64_t count, CacheBlockId* ids) const noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::uint64_t>(slots[i]);
    const std::uint32_t owner = place < capacity_blocks() ? frames_.owner(static_cast<Place>(place)) : kRetired;
    if (owner == BlockFrames::kFree || owner == kRetired) {
      return Status::fail(Code::not_mapped, "a slot of the cache that has no block", place * shape_.stride,
                          block_bytes_);
    }
    ids[i] = ids_.id_of(owner - 1);
  }
  return {};
}

Status BlockCache::check_range(std::uint64_t address, std::uint64_t nbytes) const noexcept {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_awake());
  for (std::uint64_t at = address - base(); at < address - base() + nbytes;) {
    const std::uint64_t place = at % plane_bytes() / shape_.stride;
    const std::uint32_t owner = at < capacity() ? frames_.owner(static_cast<Place>(place)) : kRetired;
    if (owner == BlockFrames::kFree || owner == kRetired) {
      return Status::fail(Code::not_mapped, "a slot of the cache that has no block", place * shape_.stride,
                          block_bytes_);
    }
    at += shape_.stride - at % plane_bytes() % shape_.stride;
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
  TM_TRY(check_awake());
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

void BlockCache::return_excess() noexcept {
  LoosePages loose(*pages_);
  const std::lock_guard lock(mutex_);
  has_excess_.store(false, std::memory_order_relaxed);
  unback_idle(keep_bytes(), loose);
}

void BlockCache::set_retention(std::uint64_t idle_bytes, double demand_blocks) noexcept {
  LoosePages loose(*pages_);
  const std::lock_guard lock(mutex_);
  idle_bytes_ = idle_bytes;
  demand_.set_window(demand_blocks);
  unback_idle(keep_bytes(), loose);
}

// --- Looking -------------------------------------------------------------------------------------------------------

std::uint64_t BlockCache::lacking_blocks(std::uint64_t count) const noexcept {
  const std::lock_guard lock(mutex_);
  if (count <= frames_.free_count()) return 0;
  const std::uint64_t limit = budget_->limit();
  const std::uint64_t room = limit - std::min(limit, budget_->used());
  const std::uint64_t kept = pages_->cache().cached_pages() * page_bytes();
  const std::uint64_t frames = std::min((room + kept) / frame_bytes(), frames_.frame_count() - frames_.backed_count());
  const std::uint64_t most = frames_.free_count() + frames * shape_.blocks;
  return count - std::min(count, most);
}

std::uint64_t BlockCache::idle_bytes_now() const noexcept {
  const std::lock_guard lock(mutex_);
  return frames_.idle_count() * frame_bytes() + pages_->cache().cached_pages() * page_bytes();
}

BlockCacheStats BlockCache::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  BlockCacheStats stats;
  stats.block_bytes = block_bytes_;
  stats.page_bytes = page_bytes();
  stats.planes = planes_;
  stats.pages_per_frame = shape_.pages;
  stats.blocks_per_frame = shape_.blocks;
  stats.capacity_blocks = capacity_blocks();
  stats.live_blocks = ids_.live_count();
  stats.retired_blocks = retired_blocks_;
  stats.pinned_blocks = pinned_blocks_;
  stats.used_pages = (frames_.backed_count() - frames_.idle_count()) * frame_pages();
  stats.floor_pages = floor_frames() * frame_pages();
  stats.cached_pages = frames_.idle_count() * frame_pages() + pages_->cache().cached_pages();
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
  const std::uint64_t mapped = pages_->mapped().count();
  const std::uint64_t backed = frames_.backed_count() * frame_pages();
  bool agree = frames_.is_valid() && pages_->is_valid() && ids_.is_valid() && retired_.is_valid();
  for (std::uint64_t frame = frames_.next_backed(0); frame != BlockFrames::kNone;
       frame = frames_.next_backed(frame + 1)) {
    for (std::uint64_t plane = 0; plane < planes_ && !suspended_; ++plane) {
      agree = agree && pages_->mapped().all_set(page_of(frame, plane), shape_.pages);
    }
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
         live + retired == frames_.taken_count() &&
         (suspended_ ||
          (planes_ == 1 ? mapped == backed : mapped >= backed));  // of a refused unmap some planes may be left
}

}  // namespace tensormem

// How a block cache gives up all its memory between requests and gets it back: blocks, ids, slots and addresses stay.
// What was in the blocks is the caller's to keep.
#include <new>
#include <utility>

#include "base/used_range.hpp"
#include "pool/block_cache.hpp"
#include "pool/block_cache_parts.hpp"

namespace tensormem {

namespace {

Status no_memory() { return Status::fail(Code::out_of_memory, "no memory to suspend a block cache", sizeof(Page)); }

}  // namespace

Status BlockCache::check_awake() const noexcept {
  if (!suspended_) [[likely]]
    return {};
  return Status::fail(Code::invalid_argument, "the cache is suspended: resume it first");
}

// From then on nothing changes but by `drop_memory` and `resume`.
Status BlockCache::begin_suspension() noexcept try {
  LoosePages loose(*pages_);
  const std::lock_guard lock(mutex_);
  TM_TRY(check_awake());
  TM_TRY(reap_locked(loose));
  drop_done_uses();
  if (pinned_blocks_ != 0) return Status::fail(Code::still_held, "blocks are pinned or viewed", base(), pinned_blocks_);
  if (!uses_.empty() || retired_blocks_ != 0) {
    return Status::fail(Code::stream_misuse, "streams still use blocks of the cache");
  }
  for (const Run& run : any_used() ? used_runs() : std::vector<Run>()) {
    Status status;
    for (std::uint64_t frame = run.first; frame < run.first + run.count; ++frame) {
      frames_.for_each_taken(frame, [&](Place place) {
        if (is_place_used(place)) status = Status::fail(Code::still_held, "a call uses a block", address_of(place), 1);
      });
    }
    TM_TRY(std::move(status));
  }
  suspended_ = true;
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

void BlockCache::cancel_suspension() noexcept {
  const std::lock_guard lock(mutex_);
  suspended_ = false;
}

std::vector<BlockCache::Run> BlockCache::used_runs() const {
  std::vector<Run> runs;
  for (std::uint64_t frame = frames_.next_backed(0); frame != BlockFrames::kNone;
       frame = frames_.next_backed(frame + 1)) {
    if (runs.empty() || runs.back().first + runs.back().count != frame) runs.push_back({frame, 0});
    runs.back().count += 1;
  }
  return runs;
}

Status BlockCache::unmap_runs(const std::vector<Run>& runs, LoosePages& loose) noexcept {
  Status status;
  for (const Run& run : runs) {
    for (std::uint64_t plane = 0; plane < planes_; ++plane) {
      const std::uint64_t begin = page_of(run.first, plane);
      const std::uint64_t end = begin + run.count * shape_.pages;
      for (std::uint64_t first = pages_->mapped().next_set(begin); first < end;) {
        const std::uint64_t stop = std::min(pages_->mapped().next_clear(first), end);
        Status unmapped = pages_->unmap(first, stop - first, &loose.list());
        if (!unmapped.ok()) status = std::move(unmapped);
        first = pages_->mapped().next_set(stop);
      }
    }
  }
  return status;
}

// What the driver refuses to unmap stays mapped, and is counted; the rest goes.
Status BlockCache::drop_memory() noexcept try {
  Status status;
  {
    LoosePages loose(*pages_);
    const std::lock_guard lock(mutex_);
    unback_idle(0, loose);
    status = unmap_runs(used_runs(), loose);
  }
  (void)pages_->cache().trim(0);
  return status;
} catch (const std::bad_alloc&) {
  return no_memory();
}

// All of it or nothing.
Status BlockCache::restore_memory() noexcept try {
  LoosePages loose(*pages_);
  std::vector<std::uint64_t> homes;
  std::vector<Run> runs;
  {
    const std::lock_guard lock(mutex_);
    if (!suspended_) return Status::fail(Code::invalid_argument, "the cache is not suspended");
    runs = used_runs();
    for (const Run& run : runs) {
      for (std::uint64_t plane = 0; plane < planes_; ++plane) {
        const std::uint64_t begin = page_of(run.first, plane);
        for (std::uint64_t page = begin; page < begin + run.count * shape_.pages; ++page) {
          if (!pages_->mapped().test(page)) homes.push_back(page);
        }
      }
    }
  }
  TM_TRY(loose.take_up_to(std::move(homes)));
  const std::lock_guard lock(mutex_);
  for (const Run& run : runs) {
    Status status = map_run(run, loose);
    if (status.ok()) continue;
    (void)unmap_runs(runs, loose).ok();
    return status;
  }
  note_peak();
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

Status BlockCache::live_blocks(std::vector<Place>* places) const noexcept try {
  const std::lock_guard lock(mutex_);
  places->reserve(ids_.live_count());
  for (std::uint64_t frame = frames_.next_backed(0); frame != BlockFrames::kNone;
       frame = frames_.next_backed(frame + 1)) {
    frames_.for_each_taken(frame, [&](Place place) { places->push_back(place); });
  }
  return {};
} catch (const std::bad_alloc&) {
  return no_memory();
}

}  // namespace tensormem

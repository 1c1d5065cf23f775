// How a block cache is packed. Memory is wasted by frames that are partly empty, and addresses are not scarce, so whole
// frames never move: blocks of the emptiest frames are copied into the holes of the fullest, which costs the fewest
// copies, until as few frames are left as can hold the blocks. A block moves or stays; a step may stop after any.
#include <chrono>
#include <new>
#include <utility>

#include "base/invariant.hpp"
#include "pool/block_cache.hpp"
#include "pool/block_cache_parts.hpp"
#include "trace/reports.hpp"

namespace tensormem {

class BlockCache::Limits {
 public:
  Limits(std::uint64_t max_bytes, double max_seconds)
      : max_bytes_(max_bytes), max_seconds_(max_seconds), start_(std::chrono::steady_clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool allow(std::uint64_t nbytes, const PackingReport& report) const {
    return report.copied_bytes <= max_bytes_ && nbytes <= max_bytes_ - report.copied_bytes && seconds() < max_seconds_;
  }

 private:
  const std::uint64_t max_bytes_;
  const double max_seconds_;
  const std::chrono::steady_clock::time_point start_;
};

Status BlockCache::queue_copy(Place from, Place to, StreamId stream) noexcept {
  for (std::uint64_t plane = 0; plane < planes_; ++plane) {
    const Pitched source{address_of(from) + plane * plane_bytes(), device_, block_bytes_, block_bytes_};
    const Pitched destination{address_of(to) + plane * plane_bytes(), device_, block_bytes_, block_bytes_};
    TM_TRY(driver_.copy(destination, source, {block_bytes_, 1, 1}, stream));
    report_copy(destination.address, source.address, block_bytes_, stream);
  }
  return {};
}

Status BlockCache::copy_block(Place from, Place to) noexcept {
  TM_TRY(queue_copy(from, to, kDefaultStream));
  if (driver_.stream_is_inline(kDefaultStream)) return {};
  EventRef copied;
  TM_TRY(order_.mark(kDefaultStream, &copied));
  return order_.synchronize({{kDefaultStream, copied}});
}

Status BlockCache::move_block(Place from, PackingReport* report) {
  const std::uint32_t row = frames_.owner(from) - 1;
  report->moves.emplace_back();
  const Place to = frames_.take();
  Status status = copy_block(from, to);
  if (!status.ok()) {
    frames_.give_back(to);
    report->moves.pop_back();
    return status;
  }
  report->moves.back() = {ids_.id_of(row), from, to};
  report->copied_bytes += block_bytes_ * planes_;
  frames_.set_owner(to, row + 1);
  ids_[row].place = to;
  frames_.give_back(from);
  total_moved_ += 1;
  return {};
}

bool BlockCache::can_empty(std::uint64_t frame) const noexcept {
  if (frames_.taken_in(frame) == 0 || frames_.fixed_in(frame) != 0) return false;
  bool movable = true;
  frames_.for_each_taken(
      frame, [&](Place place) { movable = movable && !ids_[frames_.owner(place) - 1].used && !is_place_used(place); });
  return movable;
}

// The emptiest frame that can be emptied into the others, or none. Asked anew for each, because the last one filled
// others.
std::uint64_t BlockCache::choose_victim() const noexcept {
  std::uint64_t victim = BlockFrames::kNone;
  if (frames_.backed_count() - frames_.idle_count() <= floor_frames()) return victim;
  frames_.for_each_emptiest_first([&](std::uint64_t frame) {
    if (can_empty(frame)) victim = frame;
    return victim == BlockFrames::kNone;
  });
  return victim;
}

Status BlockCache::empty_frame(std::uint64_t frame, const Limits& limits, PackingReport* report) {
  Places places;
  places.reserve(frames_.taken_in(frame));
  frames_.for_each_taken(frame, [&](Place place) { places.push_back(place); });
  report->moves.reserve(report->moves.size() + places.size());  // nothing throws while the frame is aside
  frames_.set_aside(frame);
  Status status;
  for (const Place place : places) {
    report->finished = limits.allow(block_bytes_ * planes_, *report);
    if (!report->finished) break;
    status = move_block(place, report);
    if (!status.ok()) break;
  }
  frames_.put_back(frame);
  if (frames_.taken_in(frame) == 0) report->released_pages += frame_pages();
  return status;
}

// The lock is let go after each frame, so that others wait for one frame at most; and there are at most as many steps
// as frames at the start, so that others who keep freeing blocks do not keep it going.
Status BlockCache::compact(std::uint64_t max_bytes, double max_seconds, PackingReport* report) noexcept try {
  const Limits limits(max_bytes, max_seconds);
  Status status;
  report->finished = true;
  std::uint64_t most = frames_.frame_count();
  for (std::uint64_t step = 0; step < most && status.ok() && report->finished; ++step) {
    LoosePages loose(*pages_);
    const std::lock_guard lock(mutex_);
    TM_TRY(check_awake());
    if (step == 0) {
      (void)reap_locked(loose).ok();
      drop_done_uses();
      most = frames_.backed_count();
    }
    const std::uint64_t victim = choose_victim();
    if (victim == BlockFrames::kNone) break;
    status = empty_frame(victim, limits, report);
    unback_idle(keep_bytes(), loose);
  }
  if (!status.ok()) report->finished = false;
  report->seconds = limits.seconds();
  return status;
} catch (const std::bad_alloc&) {
  report->finished = false;
  return Status::fail(Code::out_of_memory, "no memory to plan a compaction", sizeof(CacheBlockMove));
}

Status BlockCache::eviction_hints(std::uint64_t nbytes, const CacheBlockId* candidates, std::uint64_t candidate_count,
                                  bool any_block, std::vector<CacheBlockId>* ids) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(find_all(candidates, candidate_count, &scratch_));
  ids->reserve(ids_.live_count());
  for (const std::uint32_t row : scratch_) ids_[row].marked = true;
  std::uint64_t emptied = 0;
  frames_.for_each_emptiest_first([&](std::uint64_t frame) {
    if (emptied >= nbytes) return false;
    bool may_end = frames_.fixed_in(frame) == 0;
    if (!any_block && may_end) {
      frames_.for_each_taken(frame, [&](Place at) { may_end = may_end && ids_[frames_.owner(at) - 1].marked; });
    }
    if (!may_end) return true;
    frames_.for_each_taken(frame, [&](Place at) { ids->push_back(ids_.id_of(frames_.owner(at) - 1)); });
    emptied += frame_bytes();
    return true;
  });
  for (const std::uint32_t row : scratch_) ids_[row].marked = false;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to list blocks", sizeof(CacheBlockId));
}

}  // namespace tensormem

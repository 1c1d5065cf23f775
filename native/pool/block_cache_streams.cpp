// How blocks end: at once, or when the streams that use them have passed. Nothing here waits for a stream.
#include <new>
#include <utility>

#include "base/invariant.hpp"
#include "base/used_range.hpp"
#include "pool/block_cache.hpp"
#include "pool/block_cache_parts.hpp"
#include "trace/record.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

Status no_memory_for_uses() { return Status::fail(Code::out_of_memory, "no memory to note uses", sizeof(Use)); }

// The latest use of each stream is enough for one block.
void replace_use(Uses& uses, const Use& use) {
  for (Use& known : uses) {
    if (known.stream != use.stream) continue;
    known = use;
    return;
  }
  uses.push_back(use);
}

// Several blocks may have been used at different times: each event counts.
void add_use(Uses& uses, const Use& use) {
  for (const Use& known : uses) {
    if (known.event.handle() == use.event.handle()) return;
  }
  uses.push_back(use);
}

}  // namespace

Status BlockCache::check_unpinned(const std::vector<std::uint32_t>& rows) const noexcept {
  for (const std::uint32_t row : rows) {
    const std::uint64_t address = address_of(ids_[row].place);
    if (ids_[row].pins != 0) return Status::fail(Code::still_held, "the block is pinned", address, ids_[row].pins);
    if (is_place_used(ids_[row].place))
      return Status::fail(Code::still_held, "a call was given its address and uses it", address, 1);
  }
  return {};
}

// Whether a call was given an address in it, in any plane.
bool BlockCache::is_place_used(Place place) const noexcept {
  if (!any_used()) return false;
  for (std::uint64_t plane = 0; plane < planes_; ++plane) {
    if (is_used(address_of(place) + plane * plane_bytes(), block_bytes_)) return true;
  }
  return false;
}

// Empty if everything queued on the stream is done.
Status BlockCache::end_of_stream(StreamId stream, Uses* until) {
  if (driver_.stream_is_inline(stream)) return {};
  bool idle = false;
  TM_TRY(driver_.stream_query(stream, &idle));
  if (idle) return {};
  EventRef end;
  TM_TRY(order_.mark(stream, &end));
  until->push_back({stream, std::move(end)});
  return {};
}

// What recorded work is not proven done. A query that fails proves nothing.
Uses BlockCache::uses_left(std::uint32_t row) {
  Uses left;
  if (!ids_[row].used) return left;
  for (const Use& use : uses_[row]) {
    bool passed = false;
    if (!order_.are_done({use}, &passed).ok() || !passed) left.push_back(use);
  }
  return left;
}

// Each plane's part is memory of its own.
void BlockCache::report_begin(std::uint32_t row) const noexcept {
  const std::uint64_t address = address_of(ids_[row].place);
  for (std::uint64_t plane = 0; plane < planes_; ++plane) {
    report_allocate(pages_->id(), address + plane * plane_bytes(), block_bytes_, ids_.id_of(row), ids_[row].tag);
  }
}

void BlockCache::report_end(std::uint32_t row) const noexcept {
  const std::uint64_t address = address_of(ids_[row].place);
  for (std::uint64_t plane = 0; plane < planes_; ++plane) {
    report_deallocate(pages_->id(), address + plane * plane_bytes(), block_bytes_, ids_.id_of(row), ids_[row].tag);
  }
}

void BlockCache::forget_row(std::uint32_t row) noexcept {
  if (trace_is_on()) [[unlikely]]
    report_end(row);
  if (ids_[row].used) [[unlikely]]
    uses_.erase(row);
  ids_.drop(row);
}

// All that must wait, waits for the same: one entry a call, so that noting it succeeds or fails as a whole.
Status BlockCache::retire_used(StreamId stream, std::vector<std::uint32_t>* rows) {
  Uses until;
  TM_TRY(end_of_stream(stream, &until));
  const bool all_wait = !until.empty();
  Places waiting;
  for (const std::uint32_t row : *rows) {
    const Uses left = uses_left(row);
    if (!all_wait && left.empty()) continue;
    for (const Use& use : left) add_use(until, use);
    waiting.push_back(ids_[row].place);
  }
  if (waiting.empty()) return {};
  retired_.push(waiting, std::move(until));
  retired_blocks_ += waiting.size();
  for (const Place place : waiting) {
    forget_row(frames_.owner(place) - 1);
    frames_.set_owner(place, kRetired);
    frames_.add_fixed(place);
  }
  std::erase_if(*rows, [this](std::uint32_t row) { return !ids_[row].live; });
  return {};
}

void BlockCache::end_rows() noexcept {
  for (std::uint32_t& row : scratch_) {
    const Place place = ids_[row].place;
    forget_row(row);
    row = place;
  }
  frames_.give_back(scratch_.data(), scratch_.size());
  demand_.note_end(static_cast<double>(frames_.taken_count()), static_cast<double>(scratch_.size()));
}

bool BlockCache::try_free(const CacheBlockId* ids, std::uint64_t count) noexcept try {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || trace_is_on() || suspended_ || !retired_.empty() || !uses_.empty() || pinned_blocks_ != 0 ||
      any_used() || !driver_.stream_is_inline(kDefaultStream)) {
    return false;
  }
  scratch_.resize(count);
  if (!ids_.mark_all(ids, count, scratch_.data()).ok()) return false;
  ids_.unmark(scratch_.data(), count);
  end_rows();
  total_freed_ += count;
  has_excess_.store(frames_.idle_count() * frame_bytes() > keep_bytes(), std::memory_order_relaxed);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

Status BlockCache::free(const CacheBlockId* ids, std::uint64_t count, StreamId stream) noexcept try {
  LoosePages loose(*pages_);
  const std::lock_guard lock(mutex_);
  TM_TRY(check_awake());
  (void)reap_locked(loose).ok();  // told by reap_pending itself
  scratch_.resize(count);
  TM_TRY(ids_.mark_all(ids, count, scratch_.data()));
  ids_.unmark(scratch_.data(), count);
  TM_TRY(check_unpinned(scratch_));
  if (!uses_.empty() || !driver_.stream_is_inline(stream)) TM_TRY(retire_used(stream, &scratch_));
  end_rows();
  total_freed_ += count;
  unback_idle(keep_bytes(), loose);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_uses();
}

// The blocks are used by the stream from then on, whether all copies were queued or not.
Status BlockCache::copy(const CacheBlockId* from, const CacheBlockId* to, std::uint64_t count,
                        StreamId stream) noexcept {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    TM_TRY(check_awake());
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint32_t row = 0;
      TM_TRY(ids_.find(from[i], &row));
      TM_TRY(ids_.find(to[i], &row));
    }
    for (std::uint64_t i = 0; i < count && status.ok(); ++i) {
      std::uint32_t source = 0;
      std::uint32_t destination = 0;
      TM_TRY(ids_.find(from[i], &source));
      TM_TRY(ids_.find(to[i], &destination));
      status = queue_copy(ids_[source].place, ids_[destination].place, stream);
    }
  }
  if (driver_.stream_is_inline(stream)) return status;
  TM_TRY(record_use(from, count, stream));
  TM_TRY(record_use(to, count, stream));
  return status;
}

Status BlockCache::record_use(const CacheBlockId* ids, std::uint64_t count, StreamId stream) noexcept try {
  const std::lock_guard lock(mutex_);
  TM_TRY(check_awake());
  TM_TRY(find_all(ids, count, &scratch_));
  if (count == 0) return {};
  Use use;
  use.stream = stream;
  TM_TRY(order_.mark(stream, &use.event));
  // First a place for each, which may fail; then the notes, which cannot.
  for (const std::uint32_t row : scratch_) {
    Uses& uses = uses_[row];
    ids_[row].used = true;
    uses.reserve(uses.size() + 1);
  }
  for (const std::uint32_t row : scratch_) replace_use(uses_[row], use);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_uses();
}

void BlockCache::drop_done_uses() noexcept {
  for (auto at = uses_.begin(); at != uses_.end();) {
    bool done = false;
    if (!order_.are_done(at->second, &done).ok() || !done) {
      ++at;
      continue;
    }
    ids_[at->first].used = false;
    at = uses_.erase(at);
  }
}

Status BlockCache::reap_locked(LoosePages& loose) noexcept try {
  if (retired_.empty()) return {};
  std::vector<Places> done;
  Status status = retired_.take_done(order_, &done);
  for (const Places& places : done) {
    for (const Place place : places) {
      frames_.drop_fixed(place);
      frames_.give_back(place);
    }
    retired_blocks_ -= places.size();
  }
  if (!done.empty()) unback_idle(keep_bytes(), loose);
  return status;
} catch (const std::bad_alloc&) {
  return no_memory_for_uses();
}

Status BlockCache::reap_pending() noexcept {
  LoosePages loose(*pages_);
  const std::lock_guard lock(mutex_);
  return reap_locked(loose);
}

}  // namespace tensormem

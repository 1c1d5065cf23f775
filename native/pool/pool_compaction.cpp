// How the pool is compacted, in two parts.
//   Pages: what costs memory is a page that is partly empty. The emptiest are emptied first: their blocks are copied
//   into the holes of fuller ones, and the page goes back. A page is only begun when all of it has a place.
//   Addresses: what costs large requests is free room in many pieces. Blocks of whole pages move down into it, by
//   remapping: the highest into holes that fit, then each towards its neighbour.
// A step never leaves anything half moved, so it may stop after any of them and go on another time.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "pool/pool_work.hpp"
#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

class VirtualMemoryPool::Clock {
 public:
  Clock(const CompactionLimits& limits, std::uint64_t page_bytes, const CompactionReport& report)
      : limits_(limits), page_bytes_(page_bytes), report_(report), start_(std::chrono::steady_clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool allows(std::uint64_t nbytes) const {
    const std::uint64_t moved = report_.copied_bytes + report_.remapped_pages * page_bytes_;
    return moved <= limits_.max_bytes && nbytes <= limits_.max_bytes - moved && seconds() < limits_.max_seconds;
  }

 private:
  const CompactionLimits& limits_;
  const std::uint64_t page_bytes_;
  const CompactionReport& report_;
  const std::chrono::steady_clock::time_point start_;
};

struct VirtualMemoryPool::PartialPage {
  std::uint64_t page = 0;
  std::uint64_t live_bytes = 0;
  std::uint32_t seen = 0;  // what lies in it and was looked at; retired ranges are not
  bool can_empty = true;
  std::vector<std::uint64_t> blocks;  // offsets
};

// The partly filled pages, and the holes in them.
class VirtualMemoryPool::Packing {
 public:
  explicit Packing(VirtualMemoryPool& pool) : pool_(pool) {
    for (const auto& [offset, block] : pool.blocks_) {
      if (!block.suspended) look_at(block);
    }
    for (auto& [page, partial] : partial_) {
      partial.page = page;
      if (partial.seen != pool.references_[page]) partial.can_empty = false;
      add_holes(page);
    }
  }

  // The emptiest first.
  std::vector<const PartialPage*> victims() const {
    std::vector<const PartialPage*> found;
    for (const auto& [page, partial] : partial_) {
      if (partial.can_empty && !partial.blocks.empty()) found.push_back(&partial);
    }
    std::ranges::sort(found, {}, [](const PartialPage* each) { return std::pair(each->live_bytes, ~each->page); });
    return found;
  }

  // A place in another page for each block of the victim, in their order; empty when there is not room for all.
  std::vector<std::uint64_t> find_places(const PartialPage& victim) {
    std::vector<std::uint64_t> places;
    if (filled_.contains(victim.page)) return places;
    const Holes before = holes_;
    remove_holes(victim.page);
    for (const std::uint64_t offset : victim.blocks) {
      std::uint64_t place = 0;
      if (!take_hole(pool_.blocks_.find(offset)->second, &place)) {
        holes_ = before;
        return {};
      }
      places.push_back(place);
    }
    for (const std::uint64_t place : places) filled_.insert(place / pool_.page_bytes());
    return places;
  }

 private:
  using Holes = std::multimap<std::uint64_t, std::uint64_t>;  // size to offset

  void look_at(const PoolBlock& block) {
    const PageSpan span = pool_.span_of(block.offset, block.size);
    const std::uint64_t page_bytes = pool_.page_bytes();
    const bool is_inside = span.count == 1 && block.size < page_bytes;
    // Only the ends of a block can lie in a page that is not full.
    for (const std::uint64_t page : {span.first, span.end() - 1}) {
      const std::uint64_t start = std::max(block.offset, page * page_bytes);
      const std::uint64_t end = std::min(block.offset + block.extent, (page + 1) * page_bytes);
      if (end - start != page_bytes) {
        PartialPage& partial = partial_[page];
        partial.seen += 1;
        partial.live_bytes += end - start;
        if (is_inside && pool_.can_move(block)) {
          partial.blocks.push_back(block.offset);
        } else {
          partial.can_empty = false;
        }
      }
      if (span.count == 1) break;
    }
  }

  void add_holes(std::uint64_t page) {
    const std::uint64_t start = page * pool_.page_bytes();
    const std::uint64_t end = start + pool_.page_bytes();
    pool_.extents_.for_each_free(start, end, [&](std::uint64_t offset, std::uint64_t size) {
      const std::uint64_t from = std::max(offset, start);
      const std::uint64_t to = std::min(offset + size, end);
      if (from < to) holes_.emplace(to - from, from);
    });
  }

  void remove_holes(std::uint64_t page) {
    std::erase_if(holes_, [&](const auto& hole) { return hole.second / pool_.page_bytes() == page; });
  }

  bool take_hole(const PoolBlock& block, std::uint64_t* place) {
    for (auto at = holes_.lower_bound(block.extent); at != holes_.end(); ++at) {
      const auto [size, offset] = *at;
      const std::uint64_t start = align_up(offset, block.alignment);
      if (start + block.extent > offset + size) continue;
      holes_.erase(at);
      if (start != offset) holes_.emplace(start - offset, offset);
      if (start + block.extent != offset + size) {
        holes_.emplace(offset + size - start - block.extent, start + block.extent);
      }
      *place = start;
      return true;
    }
    return false;
  }

  VirtualMemoryPool& pool_;
  std::map<std::uint64_t, PartialPage> partial_;
  Holes holes_;
  std::set<std::uint64_t> filled_;
};

Status VirtualMemoryPool::compact(const CompactionLimits& limits, CompactionReport* report) noexcept try {
  Work work(*pages_);
  const std::lock_guard lock(mutex_);
  const Clock clock(limits, page_bytes(), *report);
  (void)reap_locked(work).ok();
  report->finished = true;
  Status status = pack_pages(clock, work, report);
  if (status.ok() && report->finished) status = slide_blocks(clock, work, report);
  if (!status.ok()) report->finished = false;
  report->seconds = clock.seconds();
  return status;
} catch (const std::bad_alloc&) {
  report->finished = false;
  return Status::fail(Code::out_of_memory, "no memory to plan the compaction", sizeof(PoolBlock));
}

// --- Pages ---------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::pack_pages(const Clock& clock, Work& work, CompactionReport* report) {
  Packing packing(*this);
  for (const PartialPage* victim : packing.victims()) {
    if (!clock.allows(victim->live_bytes)) {
      report->finished = false;
      return {};
    }
    const std::vector<std::uint64_t> places = packing.find_places(*victim);
    if (!places.empty()) TM_TRY(empty_page(*victim, places, work, report));
  }
  return {};
}

Status VirtualMemoryPool::empty_page(const PartialPage& victim, const std::vector<std::uint64_t>& places, Work& work,
                                     CompactionReport* report) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto at = blocks_.find(victim.blocks[i]);
    const std::uint64_t from = at->second.offset;
    const std::uint64_t extent = at->second.extent;
    (void)extents_.take_at(places[i], extent);
    Status status = slide(at, places[i], work, report);
    // Those before it have moved as a whole, and may stay where they are.
    extents_.give_back(status.ok() ? from : places[i], extent);
    TM_TRY(std::move(status));
  }
  return {};
}

// --- Addresses -----------------------------------------------------------------------------------------------------

bool VirtualMemoryPool::is_slidable(const PoolBlock& block) noexcept {
  return block.size >= page_bytes() && is_aligned(block.offset, page_bytes()) && can_move(block);
}

// The place may overlap the block itself.
Status VirtualMemoryPool::move_down(Blocks::iterator at, std::uint64_t to, Work& work, CompactionReport* report) {
  const std::uint64_t from = at->second.offset;
  const std::uint64_t extent = at->second.extent;
  extents_.give_back(from, extent);
  (void)extents_.take_at(to, extent);
  Status status = slide(at, to, work, report);
  if (status.ok()) return {};
  extents_.give_back(to, extent);
  (void)extents_.take_at(from, extent);
  return status;
}

Status VirtualMemoryPool::slide_blocks(const Clock& clock, Work& work, CompactionReport* report) {
  const auto is_compact = [&] { return extents_.total_free() - extents_.largest_free() < page_bytes(); };
  std::vector<std::uint64_t> large;
  for (const auto& [offset, block] : blocks_) {
    if (block.size >= page_bytes()) large.push_back(offset);
  }
  // The highest into holes below that fit.
  for (auto offset = large.rbegin(); offset != large.rend() && !is_compact(); ++offset) {
    const auto at = blocks_.find(*offset);
    if (!is_slidable(at->second)) continue;
    std::uint64_t to = 0;
    if (!extents_.take(at->second.extent, page_bytes(), &to, at->first)) continue;
    extents_.give_back(to, at->second.extent);
    if (slide_needs_page(at->second, to)) continue;
    if (!clock.allows(at->second.size)) {
      report->finished = false;
      return {};
    }
    TM_TRY(move_down(at, to, work, report));
  }
  // Each towards its lower neighbour.
  for (auto at = blocks_.begin(); at != blocks_.end() && !is_compact();) {
    const auto next = std::next(at);
    const std::uint64_t below = at == blocks_.begin() ? 0 : std::prev(at)->second.offset + std::prev(at)->second.extent;
    const std::uint64_t to = align_up(below, page_bytes());
    const bool fits = to < at->first && is_slidable(at->second) && extents_.is_free(to, at->first - to) &&
                      !slide_needs_page(at->second, to);
    if (fits && !clock.allows(at->second.size)) {
      report->finished = false;
      return {};
    }
    if (fits) TM_TRY(move_down(at, to, work, report));
    at = next;
  }
  return {};
}

}  // namespace tensormem

// How the pool is compacted, in three parts.
//   Pages: what costs memory is a page that is partly empty. The emptiest are emptied first: their blocks are copied
//   into the holes of fuller ones, and the page goes back.
//   Blocks: one that has more pages of its own than it would need beside another is copied there, where that is worth
//   the bytes: so the ends of large blocks come to share pages too.
//   Addresses: what costs large requests is free room in many pieces. Blocks of whole pages move down into it, by
//   remapping: the highest into holes that fit, then each towards its neighbour.
// A step never leaves anything half moved, so it may stop after any of them and go on another time.
#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "pool/pool_packing.hpp"
#include "pool/pool_work.hpp"

namespace tensormem {

namespace {

// Copying more pages than this to win one is not worth it: what is lost then is one part in as many.
constexpr std::uint64_t kWorthPages = 32;
// A page is lined up with others if at least one part in so many of it is empty.
constexpr std::uint64_t kWorthWaste = 8;
// Free runs of addresses that are looked at for one block.
constexpr int kPlacesToTry = 64;
// Each part makes room for the others; after so many rounds the rest is not worth the search.
constexpr int kRounds = 8;

}  // namespace

struct VirtualMemoryPool::Relocation {
  std::uint64_t to = 0;
  std::uint64_t cost = 0;  // new pages
  std::uint64_t gain = 0;  // pages fewer afterwards; 0: nothing to be won
};

Status VirtualMemoryPool::compact(const CompactionLimits& limits, CompactionReport* report) noexcept try {
  Work work(*pages_);
  const Clock clock(limits, page_bytes(), *report);
  std::uint64_t wanted = 0;  // pages to copy into before others are free; 0 once there are no more to be had
  bool can_have = true;
  Status status;
  do {
    if (wanted != 0) can_have = work.take_for_now(wanted).ok();
    const std::lock_guard lock(mutex_);
    (void)reap_locked(work).ok();
    report->finished = true;
    wanted = 0;
    status = compact_locked(clock, work, &wanted, report);
  } while (status.ok() && wanted != 0 && can_have);
  if (!status.ok()) report->finished = false;
  report->seconds = clock.seconds();
  return status;
} catch (const std::bad_alloc&) {
  report->finished = false;
  return Status::fail(Code::out_of_memory, "no memory to plan the compaction", sizeof(PoolBlock));
}

Status VirtualMemoryPool::compact_locked(const Clock& clock, Work& work, std::uint64_t* wanted,
                                         CompactionReport* report) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t before = pages_->mapped().count();
    TM_TRY(pack_pages(false, clock, work, report));
    if (report->finished) TM_TRY(pack_pages(true, clock, work, report));
    if (report->finished) TM_TRY(relocate_blocks(clock, work, wanted, report));
    if (!report->finished) return {};
    if (pages_->mapped().count() == before) TM_TRY(line_up_pages(clock, work, report));
    if (!report->finished) return {};
    if (pages_->mapped().count() == before) break;
  }
  return slide_blocks(clock, work, report);
}

// --- Pages ---------------------------------------------------------------------------------------------------------

Status VirtualMemoryPool::pack_pages(bool into_all, const Clock& clock, Work& work, CompactionReport* report) {
  Packing packing(*this, clock, into_all);
  report->finished = packing.is_complete();
  for (const PartialPage* victim : packing.victims()) {
    const std::vector<std::uint64_t> places = packing.find_places(*victim);
    if (places.empty() && clock.has_time()) continue;
    if (!clock.allows(victim->cost_bytes)) {
      report->finished = false;
      return {};
    }
    TM_TRY(empty_page(*victim, places, work, report));
  }
  return {};
}

Status VirtualMemoryPool::empty_page(const PartialPage& victim, const std::vector<std::uint64_t>& places, Work& work,
                                     CompactionReport* report) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto at = blocks_.find(victim.blocks[i]);
    const std::uint64_t from = at->second.offset;
    const std::uint64_t extent = at->second.extent;
    const bool is_taken = extents_.take_at(places[i], extent);
    TM_EXPECT(is_taken);
    Status status = slide(at, places[i], work, report);
    // Those before it have moved as a whole, and may stay where they are.
    extents_.give_back(status.ok() ? from : places[i], extent);
    TM_TRY(std::move(status));
  }
  return {};
}

// What fits into no hole is lined up behind everything else, as long as that makes whole pages of the waste.
Status VirtualMemoryPool::line_up_pages(const Clock& clock, Work& work, CompactionReport* report) {
  Packing packing(*this, clock, true);
  report->finished = packing.is_complete();
  std::uint64_t wasted = 0;
  std::vector<const PartialPage*> victims;
  for (const PartialPage* victim : packing.victims()) {
    if (victim->live_bytes + page_bytes() / kWorthWaste > page_bytes()) continue;
    victims.push_back(victim);
    wasted += page_bytes() - victim->live_bytes;
  }
  for (const PartialPage* victim : victims) {
    if (wasted < 2 * page_bytes()) break;
    wasted -= page_bytes() - victim->live_bytes;
    if (!clock.allows(victim->cost_bytes)) {
      report->finished = false;
      return {};
    }
    for (const std::uint64_t offset : victim->blocks) {
      const auto at = blocks_.find(offset);
      if (at == blocks_.end()) continue;  // it went with another page
      const std::uint64_t extent = at->second.extent;
      const std::uint64_t start = extents_.largest_free_offset();
      const std::uint64_t to = align_up(start, at->second.alignment);
      if (to + extent > start + extents_.largest_free() || unmapped_in(span_of(to, extent)) > work.available()) break;
      (void)extents_.take_at(to, extent);
      Status status = slide(at, to, work, report);
      extents_.give_back(status.ok() ? offset : to, extent);
      TM_TRY(std::move(status));
    }
  }
  return {};
}

// --- Blocks --------------------------------------------------------------------------------------------------------

// Those that go when the block leaves for `other`.
std::uint64_t VirtualMemoryPool::pages_of_its_own(const PoolBlock& block, const PageSpan& other) const noexcept {
  const PageSpan span = span_of(block.offset, block.size);
  const auto goes = [&](std::uint64_t page) {
    return references_[page] == 1 && (page < other.first || page >= other.end());
  };
  if (span.count == 1) return goes(span.first) ? 1 : 0;
  return span.count - 2 + (goes(span.first) ? 1 : 0) + (goes(span.end() - 1) ? 1 : 0);
}

// Of a span whose addresses are free: only its ends can have memory.
std::uint64_t VirtualMemoryPool::unmapped_in(const PageSpan& span) const noexcept {
  const auto lacks = [&](std::uint64_t page) { return pages_->mapped().test(page) ? 0U : 1U; };
  if (span.count == 1) return lacks(span.first);
  return span.count - 2 + lacks(span.first) + lacks(span.end() - 1);
}

// Where the block would need the fewest pages more than it frees: at either end of a free run of addresses.
VirtualMemoryPool::Relocation VirtualMemoryPool::find_relocation(const PoolBlock& block) const {
  Relocation best;
  const auto consider = [&](std::uint64_t to) {
    const PageSpan after = span_of(to, block.size);
    const std::uint64_t cost = unmapped_in(after);
    const std::uint64_t freed = pages_of_its_own(block, after);
    if (freed > cost && freed - cost > best.gain) best = {to, cost, freed - cost};
  };
  int left = kPlacesToTry;
  const auto look = [&](std::uint64_t offset, std::uint64_t size) {
    const std::uint64_t low = align_up(offset, block.alignment);
    if (low + block.extent > offset + size) return --left > 0;
    consider(low);
    consider(align_down(offset + size - block.extent, block.alignment));
    return --left > 0;
  };
  extents_.for_each_of(block.extent, look);
  if (left <= 0) (void)look(extents_.largest_free_offset(), extents_.largest_free());
  return best;
}

// What is empty in the pages that only this block is in.
std::uint64_t VirtualMemoryPool::wasted_by(const PoolBlock& block) const noexcept {
  const PageSpan span = span_of(block.offset, block.size);
  std::uint64_t wasted = 0;
  if (references_[span.first] == 1) wasted += block.offset - span.first * page_bytes();
  if (references_[span.end() - 1] == 1) wasted += span.end() * page_bytes() - block.offset - block.extent;
  return wasted;
}

// Behind the last block, beside those that went there before: it wins nothing itself, but all of them together do.
VirtualMemoryPool::Relocation VirtualMemoryPool::join_others(const PoolBlock& block) const noexcept {
  const std::uint64_t start = extents_.largest_free_offset();
  const std::uint64_t to = align_up(start, block.alignment);
  if (to + block.extent > start + extents_.largest_free()) return {};
  const PageSpan after = span_of(to, block.size);
  const std::uint64_t cost = unmapped_in(after);
  if (pages_of_its_own(block, after) < cost) return {};
  return {to, cost, 1};
}

Status VirtualMemoryPool::relocate_blocks(const Clock& clock, Work& work, std::uint64_t* wanted,
                                          CompactionReport* report) {
  // The smallest first: they cost the least. Those that fill their pages have nothing to win.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;  // size, offset
  std::uint64_t wasted = 0;
  for (const auto& [offset, block] : blocks_) {
    if (block.size / page_bytes() > kWorthPages || wasted_by(block) == 0 || !can_move(block)) continue;
    found.emplace_back(block.size, offset);
    wasted += wasted_by(block);
  }
  std::ranges::sort(found);
  for (const auto& [size, offset] : found) {
    const auto at = blocks_.find(offset);
    Relocation place = find_relocation(at->second);
    if (place.gain == 0 && wasted >= 2 * page_bytes()) place = join_others(at->second);
    wasted -= std::min(wasted, wasted_by(at->second));
    if (place.gain == 0) {
      if (clock.has_time()) continue;
      report->finished = false;
      return {};
    }
    if (place.cost > work.available()) {
      *wanted = std::max(*wanted, place.cost);
      continue;
    }
    if (!clock.allows(size)) {
      report->finished = false;
      return {};
    }
    const std::uint64_t extent = at->second.extent;
    (void)extents_.take_at(place.to, extent);
    Status status = slide(at, place.to, work, report);
    extents_.give_back(status.ok() ? offset : place.to, extent);
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
  const auto stop = [&]() -> Status {
    report->finished = false;
    return {};
  };
  std::vector<std::uint64_t> large;
  for (const auto& [offset, block] : blocks_) {
    if (block.size >= page_bytes()) large.push_back(offset);
  }
  // The highest into holes below that fit.
  for (auto offset = large.rbegin(); offset != large.rend() && !is_compact(); ++offset) {
    if (!clock.has_time()) return stop();
    const auto at = blocks_.find(*offset);
    if (!is_slidable(at->second)) continue;
    std::uint64_t to = 0;
    if (!extents_.take(at->second.extent, page_bytes(), &to, at->first)) continue;
    extents_.give_back(to, at->second.extent);
    if (slide_needs_page(at->second, to)) continue;
    if (!clock.allows(at->second.size)) return stop();
    TM_TRY(move_down(at, to, work, report));
  }
  // Each towards its lower neighbour.
  for (auto at = blocks_.begin(); at != blocks_.end() && !is_compact();) {
    if (!clock.has_time()) return stop();
    const auto next = std::next(at);
    const std::uint64_t below = at == blocks_.begin() ? 0 : std::prev(at)->second.offset + std::prev(at)->second.extent;
    const std::uint64_t to = align_up(below, page_bytes());
    const bool fits = to < at->first && is_slidable(at->second) && extents_.is_free(to, at->first - to) &&
                      !slide_needs_page(at->second, to);
    if (fits && !clock.allows(at->second.size)) return stop();
    if (fits) TM_TRY(move_down(at, to, work, report));
    at = next;
  }
  return {};
}

}  // namespace tensormem

#include "pool/pool_packing.hpp"

#include <algorithm>

#include "base/align.hpp"

namespace tensormem {

namespace {

// Between two looks at the clock.
constexpr std::uint64_t kStep = 256;

}  // namespace

VirtualMemoryPool::Packing::Packing(VirtualMemoryPool& pool, const Clock& clock, bool into_all) : pool_(pool) {
  std::uint64_t looked_at = 0;
  for (const auto& [offset, block] : pool.blocks_) {
    if (++looked_at % kStep == 0 && !clock.has_time()) {
      is_complete_ = false;
      return;
    }
    if (!block.suspended) look_at(block);
  }
  for (auto& [page, partial] : partial_) {
    partial.page = page;
    if (partial.seen != pool.references_[page]) partial.can_empty = false;
    // The largest first: they are the hardest to place.
    std::ranges::sort(partial.blocks, std::ranges::greater(),
                      [&](std::uint64_t offset) { return pool_.blocks_.find(offset)->second.extent; });
  }
  choose_victims(into_all);
}

void VirtualMemoryPool::Packing::look_at(const PoolBlock& block) {
  const PageSpan span = pool_.span_of(block.offset, block.size);
  const std::uint64_t page_bytes = pool_.page_bytes();
  const bool can_move = block.size < page_bytes && pool_.can_move(block);
  // Only the ends of a block can lie in a page that is not full.
  for (const std::uint64_t page : {span.first, span.end() - 1}) {
    const std::uint64_t start = std::max(block.offset, page * page_bytes);
    const std::uint64_t end = std::min(block.offset + block.extent, (page + 1) * page_bytes);
    if (end - start != page_bytes) {
      PartialPage& partial = partial_[page];
      partial.seen += 1;
      partial.live_bytes += end - start;
      partial.cost_bytes += block.size;
      if (can_move) partial.blocks.push_back(block.offset);
      if (!can_move) partial.can_empty = false;
    }
    if (span.count == 1) break;
  }
}

std::uint64_t VirtualMemoryPool::Packing::free_bytes_in(const PartialPage& partial) const {
  return pool_.page_bytes() - std::min(pool_.page_bytes(), partial.live_bytes);
}

// The emptiest pages whose blocks fit into what is free in the others, by their sums.
void VirtualMemoryPool::Packing::choose_victims(bool into_all) {
  std::uint64_t room = 0;
  for (const auto& [page, partial] : partial_) {
    room += free_bytes_in(partial);
    if (partial.can_empty && !partial.blocks.empty()) victims_.push_back(&partial);
  }
  std::ranges::sort(victims_, {}, [](const PartialPage* each) { return std::pair(each->live_bytes, ~each->page); });
  std::uint64_t moving = 0;
  std::size_t count = 0;
  for (; count < victims_.size(); ++count) {
    room -= free_bytes_in(*victims_[count]);
    moving += victims_[count]->live_bytes;
    if (moving > room) break;
  }
  std::set<std::uint64_t> emptied;
  for (std::size_t i = 0; i < count && !into_all; ++i) emptied.insert(victims_[i]->page);
  if (!into_all) victims_.resize(count);
  for (const auto& [page, partial] : partial_) {
    if (!emptied.contains(page)) add_holes(page);
  }
}

std::vector<std::uint64_t> VirtualMemoryPool::Packing::find_places(const PartialPage& victim) {
  std::vector<std::uint64_t> places;
  if (filled_.contains(victim.page)) return places;
  journal_.clear();
  remove_holes(victim.page);
  for (const std::uint64_t offset : victim.blocks) {
    const auto at = pool_.blocks_.find(offset);
    std::uint64_t place = 0;
    // One that lay in two pages may have gone with the other.
    if (at == pool_.blocks_.end() || !take_hole(at->second, &place)) {
      undo();
      return {};
    }
    places.push_back(place);
  }
  for (const std::uint64_t place : places) filled_.insert(place / pool_.page_bytes());
  return places;
}

// --- Holes ---------------------------------------------------------------------------------------------------------

void VirtualMemoryPool::Packing::add_hole(std::uint64_t offset, std::uint64_t size) {
  if (size == 0) return;
  journal_.push_back({true, offset, size});
  holes_.emplace(offset, size);
  by_size_.emplace(size, offset);
}

void VirtualMemoryPool::Packing::remove_hole(std::uint64_t offset, std::uint64_t size) {
  journal_.push_back({false, offset, size});
  holes_.erase(offset);
  by_size_.erase({size, offset});
}

void VirtualMemoryPool::Packing::undo() {
  std::vector<Change> changes;
  changes.swap(journal_);
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    if (change->is_new) remove_hole(change->offset, change->size);
    if (!change->is_new) add_hole(change->offset, change->size);
  }
}

void VirtualMemoryPool::Packing::add_holes(std::uint64_t page) {
  const std::uint64_t start = page * pool_.page_bytes();
  const std::uint64_t end = start + pool_.page_bytes();
  pool_.extents_.for_each_free(start, end, [&](std::uint64_t offset, std::uint64_t size) {
    const std::uint64_t from = std::max(offset, start);
    const std::uint64_t to = std::min(offset + size, end);
    if (from < to) add_hole(from, to - from);
  });
}

void VirtualMemoryPool::Packing::remove_holes(std::uint64_t page) {
  const std::uint64_t end = (page + 1) * pool_.page_bytes();
  for (auto at = holes_.lower_bound(page * pool_.page_bytes()); at != holes_.end() && at->first < end;) {
    const auto [offset, size] = *at++;
    remove_hole(offset, size);
  }
}

bool VirtualMemoryPool::Packing::take_hole(const PoolBlock& block, std::uint64_t* place) {
  for (auto at = by_size_.lower_bound({block.extent, 0}); at != by_size_.end(); ++at) {
    const auto [size, offset] = *at;
    const std::uint64_t start = align_up(offset, block.alignment);
    if (start + block.extent > offset + size) continue;
    remove_hole(offset, size);
    add_hole(offset, start - offset);
    add_hole(start + block.extent, offset + size - start - block.extent);
    *place = start;
    return true;
  }
  return false;
}

}  // namespace tensormem

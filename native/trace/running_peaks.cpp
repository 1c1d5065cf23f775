#include "trace/running_peaks.hpp"

#include <algorithm>

namespace tensormem {

void RunningPeaks::Range::add(const Change& change) noexcept {
  if (!is_changed) {
    entry.highest = entry.lowest = entry.nbytes;
    entry.highest_count = entry.count;
    entry.highest_time = entry.lowest_time = change.time;
    is_changed = true;
  }
  entry.nbytes += change.nbytes;
  entry.count += change.begins ? 1 : -1;
  if (entry.nbytes > entry.highest) {
    entry.highest = entry.nbytes;
    entry.highest_count = entry.count;
    entry.highest_time = change.time;
  }
  if (entry.nbytes < entry.lowest) {
    entry.lowest = entry.nbytes;
    entry.lowest_time = change.time;
  }
}

PeakEntry RunningPeaks::Range::take() noexcept {
  is_changed = false;
  return entry;
}

void RunningPeaks::add(const TraceEvent& event) {
  const bool begins = event.kind == TraceKind::allocate;
  if ((!begins && event.kind != TraceKind::deallocate) || event.depth != 0) return;
  const auto nbytes = static_cast<std::int64_t>(event.nbytes);
  waiting_.push_back({.time = event.time,
                      .generation = event.generation,
                      .nbytes = begins ? nbytes : -nbytes,
                      .resource = event.resource,
                      .tag = event.tag,
                      .begins = begins});
}

void RunningPeaks::advance(std::uint64_t time) {
  const auto earlier = [](const Change& one, const Change& two) { return one.time < two.time; };
  if (!std::is_sorted(waiting_.begin(), waiting_.end(), earlier))
    std::stable_sort(waiting_.begin(), waiting_.end(), earlier);
  const auto ready =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Change& change) { return change.time > time; });
  for (auto at = waiting_.begin(); at != ready; ++at) apply(*at);
  waiting_.erase(waiting_.begin(), ready);
}

void RunningPeaks::apply(const Change& change) {
  Source& source = sources_[change.resource];
  if (change.begins) {
    source.first_generation = std::min(source.first_generation, change.generation);
  } else if (change.generation < source.first_generation) {
    return;  // from before the recording: generations of a resource rise
  }
  whole_.add(change);
  if (source.space != nullptr) source.space->add(change);
  range_of(PeakKind::tag, change.tag).add(change);
}

void RunningPeaks::place(std::uint32_t resource, std::uint32_t space) {
  sources_[resource].space = &range_of(PeakKind::space, space);
}

RunningPeaks::Range& RunningPeaks::range_of(PeakKind kind, std::uint32_t id) {
  const std::uint64_t key = static_cast<std::uint64_t>(kind) << 32 | id;
  const auto [at, is_new] = ranges_.try_emplace(key);
  if (is_new) {
    at->second.entry.kind = kind;
    at->second.entry.id = id;
  }
  return at->second;
}

bool RunningPeaks::take_whole(PeakEntry* entry) noexcept {
  if (!whole_.is_changed) return false;
  *entry = whole_.take();
  return true;
}

std::vector<PeakEntry> RunningPeaks::take_parts() {
  std::vector<PeakEntry> taken;
  taken.reserve(ranges_.size());
  for (auto& [key, range] : ranges_) {
    if (range.is_changed) taken.push_back(range.take());
  }
  return taken;
}

void RunningPeaks::clear() {
  waiting_.clear();
  sources_.clear();
  ranges_.clear();
  whole_ = {.entry = {.kind = PeakKind::whole}};
}

}  // namespace tensormem

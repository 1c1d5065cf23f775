// Owns: the way of events from the rings to the file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/interned.hpp"
#include "trace/recorder.hpp"

namespace tensormem {

namespace {

// 0 when the system does not tell.
std::uint64_t resident_bytes() noexcept {
  static const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  char text[128];
  const ssize_t length = fd < 0 ? -1 : ::pread(fd, text, sizeof text, 0);
  if (length <= 0) return 0;
  const char* const begin = text;
  const char* const end = text + length;
  const char* second = std::find(begin, end, ' ');
  std::uint64_t pages = 0;
  if (second != end) std::from_chars(second + 1, end, pages);
  return pages * page;
}

}  // namespace

void TraceRecorder::drain() noexcept {
  try {
    drain_rings();
    write_resident_bytes();
    if (scale_.now_ns() >= totals_due_ns_) write_totals();
    remove_closed_rings();
  } catch (const std::bad_alloc&) {
    // What is in the rings stays there for the next time; if they fill up, their threads count what is lost.
    if (first_failure_.ok())
      first_failure_ = Status::fail(Code::out_of_memory, "no memory to record with", kChunkEvents);
  }
}

// First how far each thread is, then the time, then the names: so every event has a time and its names before it.
void TraceRecorder::drain_rings() {
  struct Seen {
    TraceRing* ring;
    std::uint64_t head;
  };
  std::vector<Seen> seen;
  const std::uint64_t heard = trace_ticks();  // whoever reported before is seen
  {
    const std::lock_guard lock(listing_);
    seen.reserve(rings_.size());
    for (const auto& ring : rings_) seen.push_back({ring.get(), ring->head()});
  }
  scale_.advance();
  write_definitions();
  for (const auto& [ring, head] : seen) {
    while (ring->tail() != head) write_events(ring->take(head, buffer_.data(), kChunkEvents), ring->thread());
  }
  advance_peaks(heard);
}

void TraceRecorder::advance_peaks(std::uint64_t ticks) {
  peaks_.advance(ticks == ~0ULL ? ticks : scale_.to_ns(ticks));
  PeakEntry whole;
  if (peaks_.take_whole(&whole)) write_peaks(&whole, 1);
}

void TraceRecorder::write_events(std::uint64_t count, std::uint32_t thread) noexcept {
  ChunkHeader chunk{.type = ChunkType::events, .thread = thread};
  const std::uint64_t kept = convert(count, &chunk);
  if (kept == 0) return;
  chunk.count = static_cast<std::uint32_t>(kept);
  chunk.dropped = dropped();
  write(chunk, buffer_.data(), kept * sizeof(TraceEvent));
}

// Ticks become nanoseconds. What was reported before this recording began, by a thread that was late, is left out.
std::uint64_t TraceRecorder::convert(std::uint64_t count, ChunkHeader* chunk) noexcept {
  chunk->first_time = ~0ULL;
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    TraceEvent& event = buffer_[kept];
    if (kept != i) event = buffer_[i];
    if (event.time < start_ticks_) continue;
    event.time = scale_.to_ns(event.time);
    chunk->first_time = std::min(chunk->first_time, event.time);
    chunk->last_time = std::max(chunk->last_time, event.time);
    try {
      totals_.add(event);
      peaks_.add(event);
    } catch (const std::bad_alloc&) {
      // Totals are a convenience for readers that begin in the middle.
    }
    ++kept;
  }
  return kept;
}

void TraceRecorder::write_definitions() {
  Definitions ready;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spaces;
  {
    const std::lock_guard lock(defining_);
    std::swap(ready, definitions_);
    std::swap(spaces, spaces_);
  }
  for (const auto& [resource, space] : spaces) peaks_.place(resource, space);
  for (const std::uint32_t tags = tag_count(); tags_written_ < tags; ++tags_written_)
    ready.add(DefinitionKind::tag, tags_written_, {}, {tag_text(tags_written_)});
  if (ready.empty()) return;
  write({.type = ChunkType::definitions,
         .count = ready.count(),
         .first_time = scale_.now_ns(),
         .last_time = scale_.now_ns(),
         .dropped = dropped()},
        ready.bytes().data(), ready.bytes().size());
}

void TraceRecorder::write_totals() {
  const std::vector<TotalsEntry> entries = totals_.entries();
  totals_due_ns_ = scale_.now_ns() + kTotalsInterval_ns;
  const std::vector<PeakEntry> parts = peaks_.take_parts();
  write_peaks(parts.data(), parts.size());
  write({.type = ChunkType::totals,
         .count = static_cast<std::uint32_t>(entries.size()),
         .first_time = scale_.now_ns(),
         .last_time = scale_.now_ns(),
         .dropped = dropped()},
        entries.data(), entries.size() * sizeof(TotalsEntry));
}

void TraceRecorder::write_peaks(const PeakEntry* entries, std::size_t count) noexcept {
  if (count == 0) return;
  write({.type = ChunkType::peaks,
         .count = static_cast<std::uint32_t>(count),
         .first_time = scale_.now_ns(),
         .last_time = scale_.now_ns(),
         .dropped = dropped()},
        entries, count * sizeof(PeakEntry));
}

// How much memory the process really has, each time it is another amount.
void TraceRecorder::write_resident_bytes() noexcept {
  const std::uint64_t resident = resident_bytes();
  if (resident == resident_) return;
  resident_ = resident;
  TraceEvent event;
  event.kind = TraceKind::counter;
  event.time = scale_.now_ns();
  event.tag = resident_tag_;
  event.other = resident;
  write(
      {.type = ChunkType::events, .count = 1, .first_time = event.time, .last_time = event.time, .dropped = dropped()},
      &event, sizeof event);
}

void TraceRecorder::write(const ChunkHeader& chunk, const void* payload, std::uint64_t nbytes) noexcept {
  Status written = writer_.write(chunk, payload, nbytes);
  const bool holds_events = chunk.type == ChunkType::events;
  if (written.ok()) {
    if (holds_events) events_ += chunk.count;
    return;
  }
  if (holds_events) lost_.fetch_add(chunk.count, std::memory_order_relaxed);
  if (!first_failure_.ok()) return;
  first_failure_ = std::move(written);
  tell_failure();
}

void TraceRecorder::tell_failure() noexcept {
  if (failure_fd_ < 0) return;
  char line[256];
  const Failure& failure = first_failure_.failure();
  const int length = std::snprintf(line, sizeof line, "%s: %s\n", failure.what, std::strerror(failure.driver_code));
  const auto count = static_cast<std::size_t>(std::clamp<int>(length, 0, sizeof line - 1));
  [[maybe_unused]] const ssize_t told = ::write(failure_fd_, line, count);
}

void TraceRecorder::remove_closed_rings() {
  const std::lock_guard lock(listing_);
  std::erase_if(rings_, [this](const auto& ring) {
    if (!ring->is_closed() || ring->head() != ring->tail()) return false;
    dropped_before_ += ring->dropped();
    return true;
  });
}

std::uint64_t TraceRecorder::dropped() const noexcept {
  const std::lock_guard lock(listing_);
  std::uint64_t sum = dropped_before_ + lost_.load(std::memory_order_relaxed);
  for (const auto& ring : rings_) sum += ring->dropped();
  return sum;
}

}  // namespace tensormem

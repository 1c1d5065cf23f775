// Owns: how much the program had out at most and at least, over all, by space and by tag, followed along the events in
// the order of their times, so that a spike of any length is in the file and a reader finds it without reading events.
// Threads are drained one after the other: what is later than anybody has been heard of waits for the next time. Must
// not know: files.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/event.hpp"
#include "trace/file_format.hpp"

namespace tensormem {

class RunningPeaks {
 public:
  // Where the memory of a resource is: the tag that has the space's text. Before the events of that resource.
  void place(std::uint32_t resource, std::uint32_t space);
  // An event, its time in nanoseconds. Only what programs ask for counts.
  void add(const TraceEvent& event);
  // No event from before `time` is missing: what came up to then counts from here on.
  void advance(std::uint64_t time);

  // What happened to the whole since this was asked last; false when nothing did.
  bool take_whole(PeakEntry* entry) noexcept;
  // The same of the spaces and tags that anything happened to.
  std::vector<PeakEntry> take_parts();
  void clear();

 private:
  struct Change {
    std::uint64_t time;
    std::uint64_t generation;
    std::int64_t nbytes;  // above 0: a block begins
    std::uint32_t resource;
    std::uint32_t tag;
    bool begins;
  };
  struct Range {
    PeakEntry entry;
    bool is_changed = false;

    void add(const Change& change) noexcept;
    PeakEntry take() noexcept;
  };
  struct Source {  // a resource
    std::uint64_t first_generation = ~0ULL;
    Range* space = nullptr;
  };

  void apply(const Change& change);
  Range& range_of(PeakKind kind, std::uint32_t id);

  std::vector<Change> waiting_;
  Range whole_{.entry = {.kind = PeakKind::whole}};
  std::unordered_map<std::uint32_t, Source> sources_;
  std::unordered_map<std::uint64_t, Range> ranges_;  // whose entries stay where they are
};

}  // namespace tensormem

// Owns: the plan of a packing: which pages are partly filled, which of them to empty, and into which holes of the
// others their blocks go. A page is only begun when all of it has a place. Must not know: how blocks move. It looks at
// the pool under its lock and changes nothing there.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

// What one compaction may cost, and has cost.
class VirtualMemoryPool::Clock {
 public:
  Clock(const CompactionLimits& limits, std::uint64_t page_bytes, const CompactionReport& report)
      : limits_(limits), page_bytes_(page_bytes), report_(report), start_(std::chrono::steady_clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool has_time() const { return limits_.max_seconds >= kForever || seconds() < limits_.max_seconds; }
  bool allows(std::uint64_t nbytes) const {
    const std::uint64_t moved = report_.copied_bytes + report_.remapped_pages * page_bytes_;
    return moved <= limits_.max_bytes && nbytes <= limits_.max_bytes - moved && has_time();
  }

 private:
  static constexpr double kForever = 1e30;

  const CompactionLimits& limits_;
  const std::uint64_t page_bytes_;
  const CompactionReport& report_;
  const std::chrono::steady_clock::time_point start_;
};

struct VirtualMemoryPool::PartialPage {
  std::uint64_t page = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t cost_bytes = 0;  // to be copied before it is empty
  std::uint32_t seen = 0;        // what lies in it and was looked at; retired ranges are not
  bool can_empty = true;
  std::vector<std::uint64_t> blocks;  // offsets
};

class VirtualMemoryPool::Packing {
 public:
  // Into the holes of the fuller pages, as many as it takes; or of all pages, for what does not fit otherwise.
  Packing(VirtualMemoryPool& pool, const Clock& clock, bool into_all);

  // Whether there was time to look at everything. If not, there are no victims.
  bool is_complete() const { return is_complete_; }
  // The emptiest first.
  const std::vector<const PartialPage*>& victims() const { return victims_; }
  // A place in another page for each block of the victim, in their order; empty when there is not room for all.
  std::vector<std::uint64_t> find_places(const PartialPage& victim);

 private:
  struct Change {
    bool is_new = false;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  void look_at(const PoolBlock& block);
  void choose_victims(bool into_all);
  std::uint64_t free_bytes_in(const PartialPage& partial) const;
  void add_holes(std::uint64_t page);
  void remove_holes(std::uint64_t page);
  bool take_hole(const PoolBlock& block, std::uint64_t* place);
  void add_hole(std::uint64_t offset, std::uint64_t size);
  void remove_hole(std::uint64_t offset, std::uint64_t size);
  void undo();

  VirtualMemoryPool& pool_;
  bool is_complete_ = true;
  std::map<std::uint64_t, PartialPage> partial_;
  std::vector<const PartialPage*> victims_;
  std::map<std::uint64_t, std::uint64_t> holes_;               // offset to size
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // (size, offset)
  std::vector<Change> journal_;                                // of the victim at hand
  std::set<std::uint64_t> filled_;                             // pages that got blocks, and stay
};

}  // namespace tensormem

// Owns: a partial packing as its skyline: at every moment how high the placed items reach, how much may still be wasted
// there, and which items are open. A step is written to a trail and can be undone. An item is placed only on a level
// piece of skyline, so placing wastes nothing; `raise` is the only waste. Must not know: which step to try.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cliques.hpp"
#include "plan/plan_item.hpp"

namespace tensormem {

class Skyline {
 public:
  Skyline(const PlanItems& items, const Cliques& cliques, std::uint64_t seed);

  // Starts over under a capacity, which must be at least the load of every moment.
  void begin(std::int64_t capacity);
  void place(std::int32_t item, std::int64_t offset);
  void raise(std::int32_t moment, std::int64_t by);
  std::size_t mark() const { return trail_.size(); }
  void undo(std::size_t mark);

  const PlanItems& items() const { return items_; }
  const Cliques& cliques() const { return cliques_; }
  const Offsets& offsets() const { return offsets_; }  // of what is placed
  std::int32_t moments() const { return static_cast<std::int32_t>(height_.size()); }
  bool is_open(std::int32_t item) const { return open_[item] != 0; }
  bool is_finished(std::int32_t moment) const { return rest_[moment] == 0; }
  std::int64_t height(std::int32_t moment) const { return height_[moment]; }
  std::int64_t slack(std::int32_t moment) const { return slack_[moment]; }
  // Whether an open item lives at this moment and the next.
  bool is_crossed(std::int32_t moment) const { return crossing_[moment] != 0; }
  // All items, open or not, that start or end at a moment.
  const std::vector<std::int32_t>& starting(std::int32_t moment) const { return starting_[moment]; }
  const std::vector<std::int32_t>& ending(std::int32_t moment) const { return ending_[moment]; }
  // Numbers that differ, but for chance, when what is placed or wasted differs: everywhere, and at one boundary.
  std::uint64_t key() const { return key_; }
  std::uint64_t key_without(std::int32_t boundary, std::int32_t item) const {
    return boundary_keys_[boundary] ^ item_keys_[item];
  }
  bool is_valid() const;

 private:
  struct Step {
    std::int32_t index = 0;
    bool is_item = false;
    std::int64_t height = 0;  // before
  };

  void toggle(std::int32_t item, bool open, std::int64_t height);
  static std::uint64_t waste_key(std::int32_t moment, std::int64_t slack);

  const PlanItems& items_;
  const Cliques& cliques_;
  std::int64_t capacity_ = 0;
  std::vector<std::vector<std::int32_t>> starting_;
  std::vector<std::vector<std::int32_t>> ending_;
  std::vector<std::int64_t> height_;
  std::vector<std::int64_t> slack_;
  std::vector<std::int32_t> rest_;      // open items at a moment
  std::vector<std::int32_t> crossing_;  // open items at a moment and the next
  std::vector<char> open_;
  Offsets offsets_;
  std::vector<Step> trail_;
  std::vector<std::uint64_t> item_keys_;
  std::vector<std::uint64_t> boundary_keys_;
  std::uint64_t key_ = 0;
};

}  // namespace tensormem

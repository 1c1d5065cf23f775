// Owns: which offsets are taken over a span of moments, and the search for a gap there. A tree over the moments keeps,
// in each node, the union of what was placed over it; unions of a dense packing are few long runs, so a question costs
// about the logarithm of the number of moments times a short walk, also with 100,000 items and more. Must not know:
// items, orders, bounds.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tensormem {

class Occupancy {
 public:
  explicit Occupancy(std::size_t moments);

  void clear();
  // The lowest gap of `size` over the moments first to last.
  std::int64_t first_fit(std::int32_t first, std::int32_t last, std::int64_t size);
  // The smallest gap that is large enough, the lowest among equals; what is above everything counts as the largest.
  std::int64_t best_fit(std::int32_t first, std::int32_t last, std::int64_t size);
  void take(std::int32_t first, std::int32_t last, std::int64_t offset, std::int64_t size);
  bool is_valid() const;

 private:
  using Run = std::pair<std::int64_t, std::int64_t>;  // [first, second)
  using Runs = std::vector<Run>;                      // in order, apart from one another
  struct Node {
    Runs over;   // placed over exactly this node's moments
    Runs below;  // the union of that and of all nodes below
  };
  struct Cursor {
    const Run* at = nullptr;
    const Run* end = nullptr;
  };

  static void add(Runs& runs, Run run);
  void take(std::size_t node, std::int32_t low, std::int32_t high, std::int32_t first, std::int32_t last, Run run);
  void collect(std::size_t node, std::int32_t low, std::int32_t high, std::int32_t first, std::int32_t last);
  void look_at(const Runs& runs);
  // The next gap at or after `*from`: moves `*from` to its start and gives its end.
  std::int64_t next_gap(std::int64_t* from);

  const std::int32_t moments_;
  std::vector<Node> nodes_;
  std::vector<Cursor> cursors_;
};

}  // namespace tensormem

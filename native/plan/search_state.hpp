// Owns: what an exact search knows at one point: which items are placed, how low each of the others can still go, and
// what follows from that. Everything is written to a trail, so that a step can be taken back. Must not know: which step
// to try.
//
// Every plan can be pressed down until each item lies on the ground or on another one, so only such plans are looked
// at. `lowest` of an item is a proven lower bound of its offset and `support` the top of what is placed under it: an
// item may be placed exactly when the two are equal. At each moment the items that live then form a stack of known
// total height, so an item that could not have the others above it under the capacity is not the next one there: it
// goes above the end of one that can be. This is reasoned to the end after each step.
#pragma once

#include "plan/cliques.hpp"
#include "plan/plan_item.hpp"

namespace tensormem {

class SearchState {
 public:
  static constexpr std::int64_t kNever = INT64_MAX;

  SearchState(const PlanItems& items, const Cliques& cliques);

  // Begins anew under a capacity. False when it is too low, which is a proof.
  bool begin(std::int64_t capacity);
  // Places an item at its `lowest`. False when that cannot end well; take it back then.
  bool place(std::int32_t item);
  // Says that an item does not lie at its `lowest`. False when it has to.
  bool forbid(std::int32_t item);

  std::size_t mark() const { return trail_.size(); }
  void take_back(std::size_t mark);

  const PlanItems& items() const { return items_; }
  const Cliques& cliques() const { return cliques_; }
  bool may_place(std::int32_t item) const { return lowest_[item] == support_[item]; }
  std::int64_t lowest(std::int32_t item) const { return lowest_[item]; }
  const Offsets& lowest() const { return lowest_; }  // the plan, once everything is placed
  bool is_cut(std::int32_t moment) const { return crossing_[moment] == 0; }

  // The items at a moment that are not placed: `count` of them, from `begin` on.
  struct Open {
    const std::int32_t* begin = nullptr;
    std::int32_t count = 0;
  };
  Open open(std::int32_t moment) const { return {&members_[starts_[moment]], at_[moment].open}; }
  std::int64_t first_end(std::int32_t moment) const { return at_[moment].first_end; }
  std::int32_t first_to_end(std::int32_t moment) const { return at_[moment].first_to_end; }
  // How much may be wasted above the lowest point that is still open at this moment.
  std::int64_t slack(std::int32_t moment) const { return capacity_ - at_[moment].rest - at_[moment].lowest; }
  double failures(std::int32_t moment) const { return failures_[moment]; }
  bool is_valid() const;

 private:
  struct Moment {
    std::int64_t rest = 0;  // the sum of the sizes not placed
    std::int64_t lowest = 0;
    std::int64_t first_end = kNever;  // the earliest end of an item not placed, and whose it is, and the next one
    std::int64_t second_end = kNever;
    std::int32_t first_to_end = -1;
    std::int32_t open = 0;
  };
  enum class Kind : std::uint8_t { lowest, support, moment, placed };
  struct Entry {
    Kind kind = Kind::lowest;
    std::int32_t index = 0;
    std::int64_t old = 0;
  };

  bool raise(std::int32_t item, std::int64_t to);
  void queue(std::int32_t moment);
  bool settle();
  bool settle_queue();
  bool settle_floating();
  bool settle_moment(std::int32_t moment);
  bool has_room(const Open& open, std::int64_t limit);
  std::int64_t end_below(std::int32_t item) const;
  void remove(std::int32_t item);
  void put_back(std::int32_t item);
  void save(std::int32_t moment);

  const PlanItems& items_;
  const Cliques& cliques_;
  std::int64_t capacity_ = 0;
  std::vector<std::int32_t> starts_;     // of each moment in `members_`
  std::vector<std::int32_t> members_;    // the items of each moment, those not placed first
  std::vector<std::int32_t> seats_;      // where in `members_` an item is, by item and moment
  std::vector<std::int64_t> seat_base_;  // seats_[seat_base_[item] + moment]
  std::vector<std::int32_t> crossing_;   // items not placed that live at this moment and the next
  Offsets lowest_;
  Offsets support_;
  std::vector<Moment> at_;
  std::vector<Entry> trail_;
  std::vector<Moment> saved_;  // the moments that the trail speaks of
  std::vector<std::int32_t> queue_;
  std::vector<char> queued_;
  std::vector<std::int32_t> touched_;
  std::vector<std::pair<std::int64_t, std::int64_t>> late_;
  std::vector<double> failures_;  // how often a moment was where it ended badly, over all runs
};

}  // namespace tensormem

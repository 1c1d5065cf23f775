// Plans: the checker sees what collides, the search agrees with trying everything, and everyone is deterministic.
#include <algorithm>
#include <numeric>

#include "plan/exact_search.hpp"
#include "plan/greedy.hpp"
#include "plan/peak_stack.hpp"
#include "plan/plan_check.hpp"
#include "plan/plan_random.hpp"
#include "plan/planner.hpp"
#include "plan/skyline_search.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

PlanItems random_items(PlanRandom& random, std::size_t count, std::int64_t end, std::int64_t largest) {
  PlanItems items;
  for (std::size_t i = 0; i < count; ++i) {
    const auto lower = static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(end));
    const auto life = static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(end - lower));
    items.push_back({lower, lower + 1 + life, 1 + static_cast<std::int64_t>(random.next() % largest)});
  }
  return items;
}

// Straight cuts, one piece after the other; together the pieces fill the rectangle.
PlanItems cut_rectangle(PlanRandom& random, std::size_t count, std::int64_t end, std::int64_t height) {
  PlanItems pieces = {{0, end, height}};
  const auto inside = [&](std::int64_t length) { return 1 + static_cast<std::int64_t>(random.next() % (length - 1)); };
  while (pieces.size() < count) {
    const std::size_t at = random.next() % pieces.size();
    const PlanItem whole = pieces[at];
    if (random.unit() < 0.5 && whole.upper - whole.lower > 1) {
      pieces[at].upper = whole.lower + inside(whole.upper - whole.lower);
      pieces.push_back({pieces[at].upper, whole.upper, whole.size});
    } else if (whole.size > 1) {
      pieces[at].size = inside(whole.size);
      pieces.push_back({whole.lower, whole.upper, whole.size - pieces[at].size});
    }
  }
  return pieces;
}

bool live_at_once(const PlanItem& a, const PlanItem& b) { return a.lower < b.upper && b.lower < a.upper; }

// Every order, each item as low as it can be above those before it: one of them is the best there is.
std::int64_t lowest_by_trying_everything(const PlanItems& items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t lowest = INT64_MAX;
  do {
    Offsets offsets(items.size());
    std::int64_t height = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      for (std::size_t below = 0; below < k; ++below) {
        const std::size_t other = order[below];
        if (live_at_once(items[order[k]], items[other]))
          offsets[order[k]] = std::max(offsets[order[k]], offsets[other] + items[other].size);
      }
      height = std::max(height, offsets[order[k]] + items[order[k]].size);
    }
    lowest = std::min(lowest, height);
  } while (std::ranges::next_permutation(order).found);
  return lowest;
}

bool is_sound_by_pairs(const PlanItems& items, const Offsets& offsets, std::int64_t height) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] + items[i].size > height) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = offsets[i] + items[i].size <= offsets[j] || offsets[j] + items[j].size <= offsets[i];
      if (live_at_once(items[i], items[j]) && !apart) return false;
    }
  }
  return true;
}

// Under the lowest height nothing is found, and that is proven; at it something is.
void look_around_the_lowest(const PlanItems& items) {
  const Cliques cliques(items);
  const std::int64_t lowest = lowest_by_trying_everything(items);
  PlanWatch watch(1e9, {});
  ExactSearch search(items, cliques, 7);
  TM_CHECK(search.look(lowest, 1000, watch) == Answer::found);
  TM_CHECK(plan_is_sound(items, search.offsets(), lowest));
  TM_CHECK(search.look(lowest - 1, 1000, watch) == Answer::impossible);
}

}  // namespace

TM_TEST("the checker agrees with a look at every pair") {
  PlanRandom random(11);
  int sound = 0;
  for (int round = 0; round < 3000; ++round) {
    const PlanItems items = random_items(random, 1 + random.next() % 5, 8, 4);
    Offsets offsets;
    for (std::size_t i = 0; i < items.size(); ++i) offsets.push_back(static_cast<std::int64_t>(random.next() % 12) - 1);
    const bool expected = is_sound_by_pairs(items, offsets, 12);
    sound += expected ? 1 : 0;
    TM_CHECK(plan_is_sound(items, offsets, 12) == expected);
  }
  TM_CHECK(sound > 100 && sound < 2900);
}

TM_TEST("greedy plans are sound in every order, also of many items") {
  PlanRandom random(5);
  const PlanItems items = random_items(random, 3000, 2000, 1000);
  const Cliques cliques(items);
  Greedy greedy(items, cliques);
  for (int number = 0; number < Greedy::kOrders; ++number) {
    for (const Fit fit : {Fit::lowest, Fit::tightest}) {
      Placement placement;
      greedy.place(greedy.order(number), fit, &placement);
      TM_CHECK(plan_is_sound(items, placement.offsets, placement.height));
      TM_CHECK(!plan_is_sound(items, placement.offsets, placement.height - 1));
      TM_CHECK(placement.height >= cliques.bound());
    }
  }
}

TM_TEST("many items with a narrow peak are stacked at it, lower than any order of the greedy") {
  // At moment 1000 two halves live: one ends at once, and what follows needs its place in one piece.
  PlanItems items;
  PlanRandom random(5);
  for (std::int64_t i = 0; i < 400; ++i) {
    items.push_back({i % 2 == 0 ? i : 990 + i % 7, i % 2 == 0 ? 1001 + i % 3 : 1900 - i, 40});
  }
  items.push_back({1003, 1950, 7990});
  for (std::int64_t i = 0; i < 3000; ++i) {
    const auto lower = static_cast<std::int64_t>(random.next() % 1990);
    items.push_back({lower, lower + 2, 1 + static_cast<std::int64_t>(random.next() % 9)});
  }
  const Cliques cliques(items);
  Greedy greedy(items, cliques);
  Placement best;
  greedy.place(greedy.order(3), Fit::lowest, &best);
  const std::int64_t before = best.height;
  PeakStack stack(items, cliques, greedy);
  PlanWatch watch(60, nullptr);
  for (int way = 0; way < 8; ++way) stack.improve(cliques.bound(), watch, &best);
  TM_CHECK(best.height < before && plan_is_sound(items, best.offsets, best.height));
  TM_CHECK(200 * best.height <= 201 * cliques.bound());
}

TM_TEST("placing below a ceiling ends at the first item that does not fit") {
  const PlanItems items = {{0, 4, 3}, {1, 3, 4}, {5, 6, 9}};
  const Cliques cliques(items);
  Greedy greedy(items, cliques);
  Placement placed;
  TM_CHECK(greedy.place_below({0, 1, 2}, Fit::lowest, 9, &placed) == 3 && placed.height == 9);
  TM_CHECK(greedy.place_below({0, 1, 2}, Fit::lowest, 8, &placed) == 2);
  TM_CHECK(greedy.place_below({0, 1, 2}, Fit::lowest, 6, &placed) == 1);
}

TM_TEST("the exact search finds what is possible and refuses what is not") {
  PlanRandom random(3);
  for (int round = 0; round < 400; ++round) look_around_the_lowest(random_items(random, 1 + random.next() % 7, 7, 5));
}

TM_TEST("the exact search proves that the bound cannot be reached where it cannot") {
  const PlanItems items = {{1, 4, 3}, {3, 8, 1}, {6, 10, 2}, {4, 8, 2}, {0, 2, 2}, {3, 5, 1}, {8, 9, 3}};
  TM_CHECK(Cliques(items).bound() == 5 && lowest_by_trying_everything(items) == 6);
  look_around_the_lowest(items);
  PlanResult result;
  TM_CHECK(make_plan(items, {.seconds = 1e6}, {}, &result).ok());
  TM_CHECK(result.height == 6 && result.bound == 6 && result.is_optimal);
}

TM_TEST("the skyline search finds the lowest plan and nothing below it") {
  PlanRandom random(17);
  for (int round = 0; round < 400; ++round) {
    const PlanItems items = random_items(random, 1 + random.next() % 7, 7, 5);
    const Cliques cliques(items);
    const std::int64_t lowest = lowest_by_trying_everything(items);
    PlanWatch watch(1e9, {});
    SkylineSearch search(items, cliques, 7);
    TM_CHECK(search.look(lowest, 100'000, watch));
    TM_CHECK(plan_is_sound(items, search.offsets(), lowest));
    TM_CHECK(!search.look(lowest - 1, 100'000, watch));
  }
}

TM_TEST("a skyline is as before when its steps are undone") {
  PlanRandom random(19);
  const PlanItems items = random_items(random, 40, 30, 100);
  const Cliques cliques(items);
  Skyline skyline(items, cliques, 1);
  skyline.begin(2 * cliques.bound());
  const std::uint64_t key = skyline.key();
  skyline.place(skyline.starting(0).front(), 0);
  skyline.raise(0, cliques.bound());
  TM_CHECK(skyline.is_valid());
  TM_CHECK(!skyline.is_open(skyline.starting(0).front()) && skyline.key() != key);
  skyline.undo(0);
  TM_CHECK(skyline.is_valid() && skyline.key() == key && skyline.height(0) == 0);
}

TM_TEST("a rectangle that was cut into many pieces is put together again") {
  PlanRandom random(23);
  for (int round = 0; round < 20; ++round) {
    const PlanItems items = cut_rectangle(random, 200, 400, 1 << 20);
    PlanResult result;
    TM_CHECK(make_plan(items, {.capacity = 1 << 20, .seconds = 1e6}, {}, &result).ok());
    TM_CHECK(result.height == 1 << 20 && result.is_optimal);
  }
}

TM_TEST("a plan is as low as can be, proven, and the same each time") {
  PlanRandom random(8);
  for (int round = 0; round < 100; ++round) {
    const PlanItems items = random_items(random, 1 + random.next() % 7, 9, 6);
    PlanResult first;
    PlanResult second;
    TM_CHECK(make_plan(items, {.seconds = 1e6}, {}, &first).ok());
    TM_CHECK(make_plan(items, {.seconds = 1e6}, {}, &second).ok());
    TM_CHECK(first.is_optimal && first.height == lowest_by_trying_everything(items));
    TM_CHECK(first.offsets == second.offsets);
  }
}

TM_TEST("offsets are multiples of the alignment") {
  PlanResult result;
  TM_CHECK(make_plan({{0, 4, 100}, {2, 6, 300}, {3, 5, 1}}, {.alignment = 256}, {}, &result).ok());
  TM_CHECK(result.height == 256 + 512 + 256 && result.is_optimal);
  for (const std::int64_t offset : result.offsets) TM_CHECK(offset % 256 == 0);
}

TM_TEST("a watcher that says stop gets the best plan so far") {
  PlanRandom random(21);
  int told = 0;
  PlanResult result;
  const auto watcher = [&](const PlanProgress&) { return ++told < 2; };
  TM_CHECK(make_plan(random_items(random, 400, 300, 100'000), {.seconds = 1e6}, watcher, &result).ok());
  TM_CHECK(result.is_optimal || (result.was_cancelled && told == 2));
}

TM_TEST("what cannot be planned is refused") {
  PlanResult result;
  TM_CHECK(make_plan({{0, 1, 0}}, {}, {}, &result).code() == Code::invalid_size);
  TM_CHECK(make_plan({{0, 1, -5}}, {}, {}, &result).code() == Code::invalid_size);
  TM_CHECK(make_plan({{1, 1, 5}}, {}, {}, &result).code() == Code::invalid_argument);
  TM_CHECK(make_plan({{0, 1, INT64_MAX}}, {}, {}, &result).code() == Code::invalid_size);
  TM_CHECK(make_plan({{0, 1, 1LL << 61}, {0, 1, 1LL << 61}, {0, 1, 1}}, {}, {}, &result).code() == Code::invalid_size);
  TM_CHECK(make_plan({{0, 1, 5}}, {.alignment = 3}, {}, &result).code() == Code::invalid_alignment);
  TM_CHECK(make_plan({}, {}, {}, &result).ok() && result.height == 0 && result.is_optimal);
}

// Free parts of a range, against a model of every unit.
#include <random>
#include <utility>
#include <vector>

#include "alloc/extent_map.hpp"
#include "tests/check.hpp"

using tensormem::ExtentMap;

namespace {

bool all_free(const std::vector<bool>& taken, std::uint64_t first, std::uint64_t count) {
  if (first + count > taken.size()) return false;
  for (std::uint64_t i = first; i < first + count; ++i) {
    if (taken[i]) return false;
  }
  return true;
}

std::uint64_t longest_free(const std::vector<bool>& taken) {
  std::uint64_t best = 0;
  std::uint64_t run = 0;
  for (const bool each : taken) best = std::max(best, run = each ? 0 : run + 1);
  return best;
}

}  // namespace

TM_TEST("takes and returns agree with a model") {
  constexpr std::uint64_t kSize = 600;
  std::mt19937_64 random(11);
  ExtentMap map(kSize);
  std::vector<bool> taken(kSize);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  const auto mark = [&](std::uint64_t first, std::uint64_t count, bool value) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      TM_CHECK(taken[i] != value);
      taken[i] = value;
    }
  };
  for (int step = 0; step < 20000; ++step) {
    const std::uint64_t size = 1 + random() % 40;
    const std::uint64_t alignment = 1ULL << random() % 6;
    std::uint64_t offset = random() % kSize;
    const std::uint64_t kind = random() % 5;
    if (kind == 0) {
      const std::uint64_t end = random() % 3 == 0 ? random() % kSize : kSize;
      bool has_room = false;
      for (std::uint64_t at = 0; at + size <= end; at += alignment) has_room = has_room || all_free(taken, at, size);
      const bool found = map.take(size, alignment, &offset, end);
      TM_CHECK(found == has_room);
      if (found) TM_CHECK(offset % alignment == 0 && offset + size <= end);
      if (found) mark(offset, size, true), parts.emplace_back(offset, size);
    } else if (kind == 1) {
      const bool is_free = all_free(taken, offset, size);
      TM_CHECK(map.is_free(offset, size) == is_free);
      TM_CHECK(map.take_at(offset, size) == is_free);
      if (is_free) mark(offset, size, true), parts.emplace_back(offset, size);
    } else if (!parts.empty()) {
      std::swap(parts[random() % parts.size()], parts.back());
      auto [first, count] = parts.back();
      parts.pop_back();
      if (count > 3 && kind == 2) {  // a part of a part
        parts.emplace_back(first, count / 2);
        first += count / 2;
        count -= count / 2;
      }
      map.give_back(first, count);
      mark(first, count, false);
    }
    std::uint64_t free = 0;
    for (const bool each : taken) free += each ? 0 : 1;
    TM_CHECK(map.total_free() == free && map.largest_free() == longest_free(taken) && map.is_valid());
  }
}

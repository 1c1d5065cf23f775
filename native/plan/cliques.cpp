#include "plan/cliques.hpp"

#include <algorithm>

namespace tensormem {

namespace {

struct Edge {
  std::int64_t time = 0;
  bool starts = false;
  std::size_t item = 0;
};

}  // namespace

Cliques::Cliques(const PlanItems& items) : first(items.size()), last(items.size()), worst(items.size()) {
  std::vector<Edge> edges;
  edges.reserve(2 * items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    edges.push_back({items[i].lower, true, i});
    edges.push_back({items[i].upper, false, i});
  }
  std::ranges::sort(
      edges, [](const Edge& a, const Edge& b) { return a.time != b.time ? a.time < b.time : a.starts < b.starts; });
  // A set is largest just before the first end that follows a start.
  std::int64_t now = 0;
  bool growing = false;
  for (const Edge& edge : edges) {
    now += edge.starts ? items[edge.item].size : -items[edge.item].size;
    if (edge.starts) {
      if (!growing) load.push_back(0);
      growing = true;
      load.back() = now;
      first[edge.item] = static_cast<std::int32_t>(load.size() - 1);
    } else {
      growing = false;
      last[edge.item] = static_cast<std::int32_t>(load.size() - 1);
    }
  }
  count = load.size();
  for (std::size_t i = 0; i < items.size(); ++i)
    worst[i] = *std::max_element(load.begin() + first[i], load.begin() + last[i] + 1);
}

bool Cliques::is_valid(const PlanItems& items) const {
  if (first.size() != items.size() || last.size() != items.size() || load.size() != count) return false;
  std::vector<std::int64_t> sums(count);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (first[i] < 0 || first[i] > last[i] || static_cast<std::size_t>(last[i]) >= count) return false;
    for (std::int32_t moment = first[i]; moment <= last[i]; ++moment) sums[moment] += items[i].size;
  }
  return sums == load;
}

std::int64_t Cliques::bound() const { return load.empty() ? 0 : *std::ranges::max_element(load); }

}  // namespace tensormem

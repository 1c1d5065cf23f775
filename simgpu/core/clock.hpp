// Owns: what a point in a stream is known to come after: for every stream, the number of its latest work that is surely
// earlier. Comparing two of them tells whether work is ordered or only happened to run in order.
// Must not know: streams.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace simgpu {

struct Point {
  std::uint64_t stream = 0;  // a serial; 0: the host, which is before everything
  std::uint64_t number = 0;
};

class Clock {
 public:
  bool covers(const Point& point) const {
    if (point.stream == 0) return true;
    const auto found = latest_.find(point.stream);
    return found != latest_.end() && found->second >= point.number;
  }
  void raise(const Point& point) {
    std::uint64_t& number = latest_[point.stream];
    if (number < point.number) number = point.number;
  }
  void merge(const Clock& other) {
    for (const auto& [stream, number] : other.latest_) raise({stream, number});
  }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> latest_;
};

}  // namespace simgpu

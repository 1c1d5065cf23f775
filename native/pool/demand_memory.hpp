// Owns: how much memory was in use of late. It rises with every use at once, and sinks towards what is in use now by a
// part of the distance for all that is freed: after as much was freed as the window holds, about a third of the
// distance is left. Work is its clock, so that the same calls always give the same answer. Must not know: what it is
// used for. Not thread-safe: the owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tensormem {

class DemandMemory {
 public:
  // A window of 0 remembers nothing. All sizes are in one unit of the caller's.
  explicit DemandMemory(double window) noexcept : window_(window) {}

  bool remembers() const noexcept { return window_ > 0; }
  void set_window(double window) noexcept { window_ = window; }
  double window() const noexcept { return window_; }
  void note_use(double used) noexcept { level_ = std::max(level_, used); }
  void note_end(double used, double freed) noexcept {
    const double part = window_ > 0 ? std::min(1.0, freed / window_) : 1.0;
    level_ = std::max(used, level_ - (level_ - used) * part);
  }
  // What it is worth to keep beyond `used`.
  double spare(double used) const noexcept { return std::max(0.0, level_ - used); }

 private:
  double window_;
  double level_ = 0;
};

}  // namespace tensormem

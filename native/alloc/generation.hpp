// Owns: the numbers that tell one allocation from every other, so that an address used again is not mistaken for the
// block that had it before. Unique in the process; from one source always rising. 0 is never given.
#pragma once

#include <cstdint>

namespace tensormem {

// One per resource, under its owner's lock: it takes numbers from the process in batches, so the hot path has no
// atomic.
class GenerationSource {
 public:
  std::uint64_t next() {
    if (next_ == end_) [[unlikely]]
      refill();
    return next_++;
  }

 private:
  static constexpr std::uint64_t kBatch = 1024;
  void refill();

  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace tensormem

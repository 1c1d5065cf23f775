// Owns: the range given back last of each of a few sizes, kept whole for the next block of the same size. Programs give
// back and ask again for the same sizes over and over; this way that costs neither coalescing nor cutting.
// A parked range is free, but not yet known to the allocator as free: whoever looks for room or counts takes them all
// out. Must not know: chunks, streams, locks.
#pragma once

#include <array>
#include <cstdint>

#include "order/pending_ranges.hpp"

namespace tensormem {

class ParkedRanges {
 public:
  // A range of exactly `granules`, if one is parked.
  bool take(std::uint64_t granules, RangeName* name) {
    Place& place = places_[granules % kPlaces];
    if (place.granules != granules) return false;
    *name = place.name;
    place.granules = 0;
    return true;
  }

  // Parks a range; true when another had to leave for it, which is then `*evicted`. Large ones are not kept.
  bool park(RangeName name, std::uint64_t granules, RangeName* evicted) {
    if (granules > kMostGranules) {
      *evicted = name;
      return true;
    }
    Place& place = places_[granules % kPlaces];
    *evicted = place.name;
    const bool occupied = place.granules != 0;
    place = {name, granules};
    return occupied;
  }

  bool is_valid() const {
    for (std::uint64_t i = 0; i < kPlaces; ++i) {
      const std::uint64_t granules = places_[i].granules;
      if (granules != 0 && (granules % kPlaces != i || granules > kMostGranules)) return false;
    }
    return true;
  }

  template <typename Visit>
  void take_all(Visit visit) {
    for (Place& place : places_) {
      if (place.granules != 0) visit(place.name);
      place.granules = 0;
    }
  }

 private:
  static constexpr std::uint64_t kPlaces = 64;
  static constexpr std::uint64_t kMostGranules = 4096;

  struct Place {
    RangeName name;
    std::uint64_t granules = 0;  // 0: nothing is parked here
  };
  std::array<Place, kPlaces> places_{};
};

}  // namespace tensormem

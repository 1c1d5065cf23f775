// Owns: which places of which frames are taken. A frame is a run of pages cut into places for blocks of one size;
// frames are listed by how many places they have left, so that the fullest one is found at once however many there are.
// Must not know: addresses, drivers, ids of blocks: an owner is a number of the caller's. Not thread-safe: the owner's
// lock guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/page_bitmap.hpp"
#include "base/lazy_array.hpp"

namespace tensormem {

using Place = std::uint32_t;  // frame * places per frame + index

class BlockFrames {
 public:
  static constexpr std::uint64_t kMaxPlaces = 1ULL << 31;
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint64_t kNone = PageBitmap::kNone;

  // Throws bad_alloc. At most kMaxPlaces places; no frame has memory.
  BlockFrames(std::uint64_t frame_count, std::uint32_t places_per_frame);

  std::uint64_t frame_count() const noexcept { return backed_.size(); }
  std::uint32_t places_per_frame() const noexcept { return per_frame_; }
  // A multiplication instead of a division: exact for every place that there can be.
  std::uint64_t frame_of(Place place) const noexcept {
    return static_cast<std::uint64_t>(static_cast<Wide>(inverse_) * (place + 1ULL) >> 64);
  }
  std::uint64_t backed_count() const noexcept { return backed_.count(); }
  std::uint64_t idle_count() const noexcept { return idle_.count(); }
  std::uint64_t taken_count() const noexcept { return taken_; }
  std::uint64_t free_count() const noexcept { return backed_.count() * per_frame_ - taken_; }
  std::uint64_t next_without_memory(std::uint64_t from) const noexcept { return backed_.next_clear(from); }
  std::uint64_t next_idle(std::uint64_t from) const noexcept { return idle_.next_set(from); }
  std::uint64_t next_backed(std::uint64_t from) const noexcept { return backed_.next_set(from); }
  bool is_backed(std::uint64_t frame) const noexcept { return backed_.test(frame); }

  // The frame has memory now, and nothing in it; and no longer.
  void back(std::uint64_t frame) noexcept;
  void unback(std::uint64_t frame) noexcept;

  // A place in the fullest frame that has one, else in the lowest idle frame. `free_count` says that there is one.
  Place take() noexcept {
    Place place = 0;
    (void)take_some(1, &place);
    return place;
  }
  // As many as `take` would give one after the other, each frame listed anew only once.
  void take(std::uint64_t count, Place* places) noexcept {
    while (count != 0) {
      const std::uint32_t taken = take_some(count, places);
      places += taken;
      count -= taken;
    }
  }
  void give_back(Place place) noexcept { give_back(&place, 1); }
  // Those side by side in the list that are of one frame cost it one listing.
  void give_back(const Place* places, std::uint64_t count) noexcept;

  std::uint32_t owner(Place place) const noexcept { return owners_[place]; }
  void set_owner(Place place, std::uint32_t owner) noexcept { owners_[place] = owner; }
  std::uint32_t taken_in(std::uint64_t frame) const noexcept { return frames_[frame].taken; }
  // How many of its places hold what cannot move.
  std::uint32_t fixed_in(std::uint64_t frame) const noexcept { return frames_[frame].fixed; }
  void add_fixed(Place place) noexcept { frames_[frame_of(place)].fixed += 1; }
  void drop_fixed(Place place) noexcept { frames_[frame_of(place)].fixed -= 1; }

  // While set aside, a frame gives no places; its own may be given back.
  void set_aside(std::uint64_t frame) noexcept;
  void put_back(std::uint64_t frame) noexcept;

  // Every frame with something in it, the emptiest first, until `visit(frame)` is false.
  template <typename Visit>
  void for_each_emptiest_first(Visit visit) const {
    for (std::uint32_t left = per_frame_; left-- > 0;) {
      for (std::uint32_t link = heads_[left]; link != 0; link = frames_[link - 1].next) {
        if (!visit(static_cast<std::uint64_t>(link - 1))) return;
      }
    }
  }
  // Every taken place of a frame.
  template <typename Visit>
  void for_each_taken(std::uint64_t frame, Visit visit) const {
    const std::uint64_t first = frame * per_frame_;
    for (std::uint64_t place = first; place < first + frames_[frame].touched; ++place) {
      if (owners_[place] != kFree) visit(static_cast<Place>(place));
    }
  }

  bool is_valid() const noexcept;

 private:
  __extension__ using Wide = unsigned __int128;

  // Links are numbers plus one: 0 is the end.
  struct Frame {
    std::uint32_t taken;
    std::uint32_t touched;     // places below it were taken at some time since the frame had memory
    std::uint32_t first_free;  // of those: an index in the frame
    std::uint32_t fixed;
    std::uint32_t previous;
    std::uint32_t next;
    bool aside;
  };

  // From one frame: how many.
  std::uint32_t take_some(std::uint64_t most, Place* places) noexcept;
  void link(std::uint64_t frame) noexcept;
  void unlink(std::uint64_t frame) noexcept;

  const std::uint32_t per_frame_;
  const std::uint64_t inverse_;  // of it, times 2 to the 64th, rounded down
  std::uint64_t taken_ = 0;
  PageBitmap backed_;
  PageBitmap idle_;  // backed, and nothing in it
  LazyArray<Frame> frames_;
  LazyArray<std::uint32_t> owners_;     // by place
  LazyArray<std::uint32_t> next_free_;  // by place
  PageBitmap kinds_;                    // which lists have a frame
  std::vector<std::uint32_t> heads_;    // by places left; frames that are not idle
};

}  // namespace tensormem

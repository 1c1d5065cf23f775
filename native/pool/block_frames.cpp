#include "pool/block_frames.hpp"

#include "base/invariant.hpp"

namespace tensormem {

BlockFrames::BlockFrames(std::uint64_t frame_count, std::uint32_t places_per_frame)
    : per_frame_(places_per_frame),
      backed_(frame_count),
      idle_(frame_count),
      frames_(frame_count),
      owners_(frame_count * places_per_frame),
      next_free_(frame_count * places_per_frame),
      kinds_(places_per_frame + 1ULL),
      heads_(places_per_frame + 1ULL, 0) {}

// --- Frames --------------------------------------------------------------------------------------------------------

void BlockFrames::back(std::uint64_t frame) noexcept {
  TM_ASSERT(!backed_.test(frame) && frames_[frame].taken == 0);
  backed_.set(frame);
  idle_.set(frame);
}

void BlockFrames::unback(std::uint64_t frame) noexcept {
  TM_ASSERT(idle_.test(frame));
  backed_.clear(frame);
  idle_.clear(frame);
}

void BlockFrames::link(std::uint64_t frame) noexcept {
  Frame& at = frames_[frame];
  if (at.taken == 0) {
    at = Frame{};  // what was touched is forgotten with it
    idle_.set(frame);
    return;
  }
  if (at.aside) return;
  const std::uint32_t left = per_frame_ - at.taken;
  at.previous = 0;
  at.next = heads_[left];
  if (at.next != 0) frames_[at.next - 1].previous = static_cast<std::uint32_t>(frame) + 1;
  heads_[left] = static_cast<std::uint32_t>(frame) + 1;
  if (at.next == 0) kinds_.set(left);
}

void BlockFrames::unlink(std::uint64_t frame) noexcept {
  Frame& at = frames_[frame];
  if (at.taken == 0) {
    idle_.clear(frame);
    return;
  }
  if (at.aside) return;
  const std::uint32_t left = per_frame_ - at.taken;
  if (at.next != 0) frames_[at.next - 1].previous = at.previous;
  if (at.previous != 0) {
    frames_[at.previous - 1].next = at.next;
    return;
  }
  heads_[left] = at.next;
  if (at.next == 0) kinds_.clear(left);
}

void BlockFrames::set_aside(std::uint64_t frame) noexcept {
  TM_ASSERT(frames_[frame].taken != 0);
  unlink(frame);
  frames_[frame].aside = true;
}

void BlockFrames::put_back(std::uint64_t frame) noexcept {
  if (!frames_[frame].aside) return;  // it became idle meanwhile
  frames_[frame].aside = false;
  link(frame);
}

// --- Places --------------------------------------------------------------------------------------------------------

Place BlockFrames::take() noexcept {
  const std::uint64_t left = kinds_.next_set(1);
  const std::uint64_t frame = left == kNone ? idle_.next_set(0) : heads_[left] - 1;
  TM_ASSERT(frame < frame_count());
  unlink(frame);
  Frame& at = frames_[frame];
  const std::uint64_t first = frame * per_frame_;
  std::uint64_t place = first + at.touched;
  if (at.first_free != 0) {
    place = first + at.first_free - 1;
    at.first_free = next_free_[place];
  } else {
    at.touched += 1;
  }
  at.taken += 1;
  taken_ += 1;
  link(frame);
  return static_cast<Place>(place);
}

void BlockFrames::give_back(Place place) noexcept {
  const std::uint64_t frame = frame_of(place);
  TM_ASSERT(frames_[frame].taken != 0);
  unlink(frame);
  Frame& at = frames_[frame];
  owners_[place] = kFree;
  next_free_[place] = at.first_free;
  at.first_free = static_cast<std::uint32_t>(place - frame * per_frame_) + 1;
  at.taken -= 1;
  taken_ -= 1;
  link(frame);
}

// --- Looking -------------------------------------------------------------------------------------------------------

bool BlockFrames::is_valid() const noexcept {
  std::uint64_t taken = 0;
  std::uint64_t busy = 0;
  for (std::uint64_t frame = 0; frame < frame_count(); ++frame) {
    const Frame& at = frames_[frame];
    std::uint64_t free = 0;
    for (std::uint32_t link = at.first_free; link != 0; link = next_free_[frame * per_frame_ + link - 1]) ++free;
    if (at.touched != at.taken + free || at.fixed > at.taken || at.aside) return false;
    if (at.taken != 0 && !backed_.test(frame)) return false;
    if (idle_.test(frame) != (backed_.test(frame) && at.taken == 0)) return false;
    taken += at.taken;
    busy += at.taken != 0 ? 1 : 0;
  }
  for (std::uint32_t left = 0; left <= per_frame_; ++left) {
    if (kinds_.test(left) != (heads_[left] != 0)) return false;
    for (std::uint32_t link = heads_[left]; link != 0; link = frames_[link - 1].next, --busy) {
      if (per_frame_ - frames_[link - 1].taken != left || busy == 0) return false;
    }
  }
  return taken == taken_ && busy == 0;
}

}  // namespace tensormem

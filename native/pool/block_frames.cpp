#include "pool/block_frames.hpp"

#include <algorithm>

#include "base/invariant.hpp"

namespace tensormem {

BlockFrames::BlockFrames(std::uint64_t frame_count, std::uint32_t places_per_frame)
    : per_frame_(places_per_frame),
      inverse_(~0ULL / places_per_frame),
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

std::uint32_t BlockFrames::take_some(std::uint64_t most, Place* places) noexcept {
  const std::uint64_t left = kinds_.next_set(1);
  const std::uint64_t frame = left == kNone ? idle_.next_set(0) : heads_[left] - 1;
  TM_ASSERT(frame < frame_count());
  unlink(frame);
  Frame& at = frames_[frame];
  const auto first = static_cast<Place>(frame * per_frame_);
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, per_frame_ - at.taken));
  std::uint32_t done = 0;
  for (; done < count && at.first_free != 0; ++done) {
    places[done] = first + at.first_free - 1;
    at.first_free = next_free_[places[done]];
  }
  for (; done < count; ++done) places[done] = first + at.touched++;
  at.taken += count;
  taken_ += count;
  link(frame);
  return count;
}

void BlockFrames::give_back(const Place* places, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count;) {
    const std::uint64_t frame = frame_of(places[i]);
    const std::uint64_t first = frame * per_frame_;
    Frame& at = frames_[frame];
    TM_ASSERT(at.taken != 0);
    unlink(frame);
    const std::uint64_t begin = i;
    for (; i < count && places[i] - first < per_frame_; ++i) {
      owners_[places[i]] = kFree;
      next_free_[places[i]] = at.first_free;
      at.first_free = static_cast<std::uint32_t>(places[i] - first) + 1;
    }
    at.taken -= static_cast<std::uint32_t>(i - begin);
    taken_ -= i - begin;
    link(frame);
  }
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

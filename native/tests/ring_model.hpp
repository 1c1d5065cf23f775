// Owns: what a frame ring has to do, said simply: frames by number with how many hold them, and empty slots. Drives a
// real ring beside it, one step at a time, and says whether both agree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "share/ring_reader.hpp"
#include "share/ring_writer.hpp"

namespace tensormem::test {

class RingModel {
 public:
  RingModel(std::uint32_t frames, WhenFull when_full) : when_full_(when_full) {
    FrameFormat format;
    format.frame_count = frames;
    format.when_full = when_full;
    format.dtype = {1, 8, 1};
    opened_ = RingFile::create(format, &file_).ok() && RingWriter::attach(file_, &writer_).ok() && writer_ != nullptr;
    if (!opened_) return;
    empty_ = file_->format().slot_count;
    bytes_.resize(empty_);
  }
  bool opened() const { return opened_; }

  // False when the ring did something else than the model.
  // One step, after which model and ring agree and every structure is valid.
  bool step(std::uint8_t what, std::uint8_t who) {
    if (!take_step(what, who) || !file_->is_valid() || !writer_->is_valid()) return false;
    for (const Reader& each : readers_)
      if (!each.real->is_valid()) return false;
    return true;
  }

 private:
  bool take_step(std::uint8_t what, std::uint8_t who) {
    switch (what % 6) {
      case 0:
      case 1:
        return write(who % 8 == 0);
      case 2:
      case 3:
        return read(who);
      case 4:
        return give_back(who);
      default:
        return who % 3 == 0 ? join_or_leave(who) : read(who);
    }
  }

  struct Reader {
    std::unique_ptr<RingReader> real;
    std::uint64_t wants = 1;
    bool first = true;
    std::vector<HeldFrame> held;
  };

  std::uint64_t lowest_wanted() const {
    std::uint64_t lowest = ~0ULL;
    for (const Reader& each : readers_)
      if (each.real->mode() == ReadMode::every) lowest = std::min(lowest, each.wants);
    return lowest;
  }

  // Takes a slot out of the model, if there is one to take.
  bool claim() {
    if (empty_ > 0) {
      --empty_;
      return true;
    }
    const std::uint64_t limit = when_full_ == WhenFull::overwrite ? ~0ULL : lowest_wanted();
    for (auto frame = frames_.begin(); frame != frames_.end(); ++frame) {
      if (frame->first >= limit) return false;
      if (frame->second != 0) continue;
      frames_.erase(frame);
      return true;
    }
    return false;
  }

  bool write(bool abandoned) {
    if (!in_hand_) in_hand_ = claim();
    const std::uint32_t slot = writer_->begin(0);
    if ((slot != RingWriter::kNoSlot) != in_hand_) return false;
    if (!in_hand_) return when_full_ == WhenFull::wait;
    bytes_[slot] = last_ + 1;
    if (abandoned) {
      writer_->abandon();
      return true;
    }
    bool published = true;
    if (when_full_ == WhenFull::wait) {
      in_hand_ = false;
    } else {
      published = claim();
    }
    const std::uint64_t number = writer_->publish(last_ + 1000);
    if ((number != 0) != published) return false;
    if (!published) return file_->header().dropped.load() == ++dropped_;
    frames_[++last_] = 0;
    return number == last_;
  }

  bool read(std::uint8_t who) {
    if (readers_.empty()) return true;
    Reader& reader = readers_[who % readers_.size()];
    HeldFrame frame;
    const bool got = reader.real->take(0, &frame) == ReadOutcome::frame;
    auto expected = frames_.lower_bound(reader.wants);
    if (got != (expected != frames_.end())) return false;
    if (!got) return true;
    if (reader.real->mode() == ReadMode::latest) expected = std::prev(frames_.end());
    if (frame.number != expected->first || frame.timestamp != frame.number + 999) return false;
    if (bytes_[frame.slot] != frame.number) return false;
    if (frame.dropped != (reader.first ? 0 : frame.number - reader.wants)) return false;
    if (when_full_ == WhenFull::wait && reader.real->mode() == ReadMode::every && frame.dropped != 0) return false;
    ++expected->second;
    reader.first = false;
    reader.wants = frame.number + 1;
    reader.held.push_back(frame);
    return true;
  }

  bool give_back(std::uint8_t who) {
    if (readers_.empty()) return true;
    Reader& reader = readers_[who % readers_.size()];
    if (reader.held.empty()) return true;
    const HeldFrame frame = reader.held.back();
    reader.held.pop_back();
    if (bytes_[frame.slot] != frame.number) return false;  // nobody wrote there while it was held
    reader.real->give_back(frame.slot);
    --frames_[frame.number];
    return true;
  }

  bool join_or_leave(std::uint8_t who) {
    if (readers_.size() >= 4 || (who % 2 == 0 && !readers_.empty())) {
      const auto leaving = readers_.begin() + who % static_cast<std::ptrdiff_t>(readers_.size());
      for (const HeldFrame& frame : leaving->held) --frames_[frame.number];
      readers_.erase(leaving);
      return true;
    }
    Reader made;
    const ReadMode mode = who % 4 == 1 ? ReadMode::every : ReadMode::latest;
    if (!RingReader::attach(file_, mode, &made.real).ok() || made.real == nullptr) return false;
    made.wants = std::max<std::uint64_t>(1, last_);
    readers_.push_back(std::move(made));
    return true;
  }

  const WhenFull when_full_;
  bool opened_ = false;
  RingFilePtr file_;
  std::unique_ptr<RingWriter> writer_;
  std::vector<std::uint64_t> bytes_;  // what is in the slots
  std::map<std::uint64_t, int> frames_;
  std::uint32_t empty_ = 0;
  bool in_hand_ = false;
  std::uint64_t last_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<Reader> readers_;
};

}  // namespace tensormem::test

// Owns: who used one block, where and when: the last write and, per stream, the latest read since. One entry a stream,
// so a block that is read a million times stays small.
// Must not know: how to wait (stream_order does), or where the block lives. Guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "order/event_cache.hpp"

namespace tensormem {

enum class Access : std::uint8_t { read = 1, write = 2, read_write = 3 };

constexpr bool reads(Access access) { return (static_cast<std::uint8_t>(access) & 1) != 0; }
constexpr bool writes(Access access) { return (static_cast<std::uint8_t>(access) & 2) != 0; }

struct Use {
  StreamId stream = kDefaultStream;
  EventRef event;
};

using Uses = std::vector<Use>;

class BlockUses {
 public:
  // What a use of kind `access` on `stream` must wait for: work of one stream is in order already.
  Uses conflicts(StreamId stream, Access access) const {
    Uses found;
    if (last_write_.event && last_write_.stream != stream) found.push_back(last_write_);
    if (!writes(access)) return found;
    for (const Use& read : reads_) {
      if (read.stream != stream) found.push_back(read);
    }
    return found;
  }

  void finished(StreamId stream, Access access, EventRef event) {
    if (writes(access)) {
      last_write_ = {stream, std::move(event)};
      reads_.clear();
      return;
    }
    for (Use& read : reads_) {
      if (read.stream == stream) {
        read.event = std::move(event);
        return;
      }
    }
    reads_.push_back({stream, std::move(event)});
  }

  std::size_t read_count() const { return reads_.size(); }

  // One read a stream, each with its event.
  bool is_valid() const {
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      if (!reads_[i].event) return false;
      for (std::size_t j = 0; j < i; ++j) {
        if (reads_[j].stream == reads_[i].stream) return false;
      }
    }
    return true;
  }

 private:
  Use last_write_;
  Uses reads_;
};

}  // namespace tensormem

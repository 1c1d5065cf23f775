// Owns: the streams that carry work of somebody's stream to another device: a copy between the host and one GPU, asked
// for on a stream of another, runs on a stream of the GPU that has the memory, and the two wait for one another by
// events. Each stream has its own, so that one that is held up holds up no other.
// Must not know: what the work is.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "driver/gpu/gpu_api.hpp"

namespace tensormem {

class GpuPlatform;

namespace gpu {

// Both events are recorded again and again: a mark only moves on along its stream, so that a thread that comes in
// between makes others wait a little longer, and never less.
struct Relay {
  StreamRef stream;
  EventRef begun;  // of the stream whose work it carries
  EventRef done;
};

class Relays {
 public:
  explicit Relays(GpuPlatform& platform) : platform_(platform) {}

  // A stream of `device` for the work of `stream`, whose handle is `queue`: it comes after what was queued there.
  Status begin(StreamId stream, StreamRef queue, std::int32_t device, Relay* relay);
  // `queue` comes after the work. Waits for the work where it cannot.
  Status end(const Relay& relay, StreamRef queue);
  // The work of a stream that ends is done: what was beside it goes.
  void forget(StreamId stream, std::int32_t home) noexcept;
  void forget_all() noexcept;

 private:
  struct Place {
    StreamId stream = kDefaultStream;
    std::int32_t home = 0;  // whose default stream it is
    std::int32_t device = 0;
    auto operator<=>(const Place&) const = default;
  };

  Status find(const Place& place, Relay* relay);
  Status make(const Place& place, Relay* relay);
  void destroy(const Relay& relay) noexcept;

  GpuPlatform& platform_;
  Mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::map<Place, Relay> relays_;
};

}  // namespace gpu

}  // namespace tensormem

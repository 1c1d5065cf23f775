// Owns: what queued work touches and no block can be told of (memory of others, or of a driver whose streams are not
// the work's): a holder that is let go once its stream has passed, found out without waiting.
// Each stream has its own list, in the order of its work, so a stream that is held up keeps nothing of another's.
// Completion that cannot be proven means keep, never release. Must not know: what a holder is.
// Thread-safe; a holder is released without a lock, since anything may run then.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_guard.hpp"
#include "driver/driver.hpp"

namespace tensormem {

// What keeps memory for a stream.
struct StreamHolder {
  void* object = nullptr;
  void (*release)(void*) = nullptr;
  bool releases_quickly = true;  // false where giving the memory back may wait for a device
};

extern std::atomic<std::uint64_t> g_stream_holds;

// How much work memory is held for; one load.
inline std::uint64_t stream_hold_count() noexcept { return g_stream_holds.load(std::memory_order_relaxed); }
inline bool any_stream_holds() noexcept { return stream_hold_count() != 0; }

class StreamHolds {
 public:
  // Keeps `holder` until `stream` of `driver` has passed what it was given so far. On failure it is still the caller's.
  Status hold(Driver& driver, std::int32_t device, StreamId stream, const StreamHolder& holder);
  // Keeps it for good: nothing can prove that the work has passed.
  void strand(const StreamHolder& holder);

  // Releases what is proven done, and says how many there were; `quickly`: only what is released without waiting.
  std::uint64_t reap(bool quickly = false);
  // The same, quickly, for one stream: for those who queue work and never wait.
  std::uint64_t reap_quickly(const Driver& driver, StreamId stream);
  // Waits for everything of a driver that is closing.
  void finish(const char* driver_name);
  bool is_valid() const;

 private:
  struct Entry {
    Driver* driver;
    StreamId stream;
    EventHandle event;  // null where the driver had none left: then all of the stream has to have passed
    StreamHolder holder;
    std::uint64_t forks;  // before it was held: a stream of the parent's tells the child nothing
    std::uint64_t number = 0;
  };
  using Entries = std::vector<Entry>;
  using Queue = std::deque<Entry>;
  using QueueName = std::pair<const Driver*, StreamId>;

  static bool has_passed(const Entry& entry);
  // Moves entries that the stream has passed to `passed`, or only those that are released quickly. The driver is asked
  // without the lock.
  void take_passed(const QueueName& name, bool quickly, Entries* passed);
  static void release_all(const Entries& passed);

  mutable std::mutex mutex_;  // never held over a driver call
  ForkGuard fork_guard_{mutex_};
  std::map<QueueName, Queue> queues_;
  std::uint64_t next_number_ = 0;
  std::vector<StreamHolder> stranded_;
};

StreamHolds& stream_holds();

}  // namespace tensormem

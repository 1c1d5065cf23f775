#include "order/stream_holds.hpp"

#include <cstring>

#include "base/blocking.hpp"
#include "order/event_cache.hpp"

namespace tensormem {

std::atomic<std::uint64_t> g_stream_holds{0};

// In a process forked meanwhile the stream does not exist, and what cannot be asked stays.
bool StreamHolds::has_passed(const Entry& entry) {
  bool passed = false;
  if (entry.event != nullptr) return entry.driver->event_query(entry.event, &passed).ok() && passed;
  if (entry.forks != fork_count()) return false;
  // A stream that was destroyed has done its work.
  if (entry.stream != kDefaultStream && !entry.driver->stream_is_valid(entry.stream)) return true;
  return entry.driver->stream_query(entry.stream, &passed).ok() && passed;
}

StreamHolds& stream_holds() {
  // Never destroyed: streams may outlive every static.
  static StreamHolds& holds = *new StreamHolds;
  return holds;
}

Status StreamHolds::hold(Driver& driver, std::int32_t device, StreamId stream, const StreamHolder& holder) {
  if (stream != kDefaultStream && !driver.stream_is_valid(stream))
    return Status::fail(Code::stream_misuse, "the stream was destroyed, or belongs to another process", stream);
  TM_TRY(check_not_capturing(driver, stream));
  EventHandle event = nullptr;
  // Without the lock, since a full queue may make this wait. Two threads may then be listed in the other order than the
  // stream's, and the earlier event is seen a little late.
  if (driver.event_create(device, &event).ok() && !driver.event_record(event, stream).ok()) {
    (void)driver.event_destroy(event).ok();
    event = nullptr;
  }
  const std::lock_guard lock(mutex_);
  queues_[{&driver, stream}].push_back({&driver, stream, event, holder, fork_count(), next_number_++});
  g_stream_holds.fetch_add(1, std::memory_order_relaxed);
  return {};
}

// Each queue is of one stream, in the order in which it was given.
bool StreamHolds::is_valid() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, queue] : queues_) {
    std::uint64_t least = 0;
    for (const Entry& entry : queue) {
      if (entry.driver != name.first || entry.stream != name.second || entry.holder.release == nullptr) return false;
      if (entry.number < least || entry.number >= next_number_) return false;
      least = entry.number + 1;
    }
  }
  return true;
}

void StreamHolds::strand(const StreamHolder& holder) {
  const std::lock_guard lock(mutex_);
  stranded_.push_back(holder);
}

void StreamHolds::take_passed(const QueueName& name, bool quickly, Entries* passed) {
  Queue looked_at;
  {
    const std::lock_guard lock(mutex_);
    const auto at = queues_.find(name);
    if (at == queues_.end()) return;
    looked_at = at->second;
  }
  // What another thread takes meanwhile answers with an error, or is not found below.
  std::uint64_t end = 0;
  for (const Entry& entry : looked_at) {
    if (!has_passed(entry)) break;
    end = entry.number + 1;
  }
  const std::lock_guard lock(mutex_);
  const auto at = queues_.find(name);
  if (at == queues_.end()) return;
  Queue& queue = at->second;
  for (auto entry = queue.begin(); entry != queue.end() && entry->number < end;) {
    if (quickly && !entry->holder.releases_quickly) {
      ++entry;
      continue;
    }
    passed->push_back(*entry);
    entry = queue.erase(entry);
  }
  if (queue.empty()) queues_.erase(at);
}

std::uint64_t StreamHolds::reap(bool quickly) {
  if (!any_stream_holds()) return 0;
  std::vector<QueueName> names;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, queue] : queues_) names.push_back(name);
  }
  Entries passed;
  for (const QueueName& name : names) take_passed(name, quickly, &passed);
  release_all(passed);
  return passed.size();
}

std::uint64_t StreamHolds::reap_quickly(const Driver& driver, StreamId stream) {
  if (!any_stream_holds()) return 0;
  Entries passed;
  take_passed({&driver, stream}, true, &passed);
  release_all(passed);
  return passed.size();
}

void StreamHolds::finish(const char* driver_name) {
  Entries taken;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = queues_.begin(); at != queues_.end();) {
      if (std::strcmp(at->first.first->name(), driver_name) != 0) {
        ++at;
        continue;
      }
      taken.insert(taken.end(), at->second.begin(), at->second.end());
      at = queues_.erase(at);
    }
  }
  Entries passed;
  for (const Entry& entry : taken) {
    const BlockingRegion region;
    Status waited = entry.event != nullptr ? entry.driver->event_synchronize(entry.event)
                                           : entry.driver->stream_synchronize(entry.stream);
    if (waited.ok() || has_passed(entry)) {
      passed.push_back(entry);
    } else {
      strand(entry.holder);
      g_stream_holds.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  release_all(passed);
}

void StreamHolds::release_all(const Entries& passed) {
  for (const Entry& entry : passed) {
    g_stream_holds.fetch_sub(1, std::memory_order_relaxed);
    if (entry.event != nullptr) (void)entry.driver->event_destroy(entry.event).ok();
    entry.holder.release(entry.holder.object);
  }
}

}  // namespace tensormem

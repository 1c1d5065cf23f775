#include "driver/host/stream_table.hpp"

#include <new>

#include "base/invariant.hpp"

namespace tensormem::host {

namespace {

struct PointWait {
  Stream* stream;
  std::uint64_t point;
};

void run_wait(const PointWait& wait) { (void)wait.stream->wait(wait.point, Wait::of_worker()).ok(); }

Status refuse_own_stream(StreamId id, const char* what) { return Status::fail(Code::stream_misuse, what, id); }

}  // namespace

Status StreamTable::check(StreamId id) const noexcept {
  if (is_valid_id(id)) [[likely]]
    return {};
  return Status::fail(Code::stream_misuse, "no such stream in this process (destroyed, foreign, or from before a fork)",
                      id);
}

Status StreamTable::find(StreamId id, Stream** stream) const noexcept {
  TM_TRY(check(id));
  *stream = slots_[slot_of(id)].stream.load(std::memory_order_acquire);
  return {};
}

Status StreamTable::set_limit(std::uint32_t limit) noexcept {
  if (limit == 0 || limit > kMaxStreams)
    return Status::fail(Code::invalid_argument, "there may be 1 to 1024 streams at once");
  const std::lock_guard lock(mutex_);
  limit_ = limit;
  return {};
}

Status StreamTable::find_free_slot(std::uint32_t* slot) noexcept {
  const std::uint32_t live = live_.load(std::memory_order_relaxed);
  if (live >= limit_)
    return Status::fail(Code::out_of_budget, "the limit on the number of streams", 1, live, 0, limit_);
  for (std::uint32_t i = 0; i < kMaxStreams; ++i) {
    const std::uint32_t candidate = (next_slot_ - 1 + i) % kMaxStreams + 1;
    if (slots_[candidate].busy) continue;
    *slot = candidate;
    return {};
  }
  // Streams that are being destroyed still have their slots.
  return Status::fail(Code::out_of_budget, "the limit on the number of streams", 1, live, 0, kMaxStreams);
}

Status StreamTable::create(StreamId* id) noexcept {
  const std::lock_guard lock(mutex_);
  std::uint32_t number = 0;
  TM_TRY(find_free_slot(&number));
  Slot& slot = slots_[number];
  Stream* stream = slot.stream.load(std::memory_order_relaxed);
  if (stream == nullptr) {
    stream = new (std::nothrow) Stream(number);
    if (stream == nullptr) return Status::fail(Code::out_of_memory, "no memory for a stream", sizeof(Stream));
    slot.stream.store(stream, std::memory_order_release);
  }
  const std::uint32_t serial = slot.next_serial;
  slot.next_serial = serial + 1 == 0 ? 1 : serial + 1;
  slot.busy = true;
  next_slot_ = number % kMaxStreams + 1;
  stream->open(serial);
  slot.live_serial.store(serial, std::memory_order_release);
  live_.fetch_add(1, std::memory_order_relaxed);
  *id = (static_cast<StreamId>(serial) << 32) | number;
  return {};
}

Status StreamTable::destroy(StreamId id, const Wait& wait) noexcept {
  if (id == kDefaultStream) return refuse_own_stream(id, "the default stream cannot be destroyed");
  Stream* stream = nullptr;
  TM_TRY(find(id, &stream));
  if (stream == Stream::current()) return refuse_own_stream(id, "a stream cannot be destroyed by its own work");
  // Of several callers one closes it; from then on it takes no work. The id is valid until the work is done: whoever
  // finds it gone may rely on that.
  TM_TRY(stream->close(serial_of(id), wait));
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[slot_of(id)];
  slot.live_serial.store(0, std::memory_order_release);
  slot.busy = false;
  live_.fetch_sub(1, std::memory_order_relaxed);
  return {};
}

Status StreamTable::destroy_all() noexcept {
  if (Stream::current() != nullptr) {
    return Status::fail(Code::stream_misuse, "work on a stream cannot shut the streams down", kDefaultStream);
  }
  for (std::uint32_t number = 1; number <= kMaxStreams; ++number) {
    const std::uint32_t serial = slots_[number].live_serial.load(std::memory_order_acquire);
    if (serial == 0) continue;
    // Somebody else may destroy it first: then it is gone, which is what was asked for.
    (void)destroy((static_cast<StreamId>(serial) << 32) | number, Wait::until_done()).ok();
  }
  return {};
}

Status StreamTable::submit(StreamId id, const Task& task) noexcept {
  if (id == kDefaultStream) {
    task.run(task.argument);
    return {};
  }
  Stream* stream = nullptr;
  TM_TRY(find(id, &stream));
  return stream->submit(serial_of(id), task);
}

Status StreamTable::mark(StreamId id, const Task& marker, Stream** stream, std::uint64_t* point,
                         bool* passed) noexcept {
  if (id == kDefaultStream) {
    *stream = nullptr;
    *point = 0;
    *passed = true;
    return {};
  }
  Stream* found = nullptr;
  TM_TRY(find(id, &found));
  TM_TRY(found->mark(serial_of(id), marker, point, passed));
  *stream = found;
  return {};
}

Status StreamTable::synchronize(StreamId id, const Wait& wait) noexcept {
  if (id == kDefaultStream) return {};
  Stream* stream = nullptr;
  TM_TRY(find(id, &stream));
  if (stream == Stream::current()) return refuse_own_stream(id, "work on a stream cannot wait for that stream");
  std::uint64_t point = 0;
  TM_TRY(stream->submitted(serial_of(id), &point));
  return stream->wait(point, wait);
}

Status StreamTable::query(StreamId id, bool* done) noexcept {
  if (id == kDefaultStream) {
    *done = true;
    return {};
  }
  Stream* stream = nullptr;
  TM_TRY(find(id, &stream));
  std::uint64_t point = 0;
  TM_TRY(stream->submitted(serial_of(id), &point));
  *done = stream->has_passed(point);
  return {};
}

Status StreamTable::wait(StreamId id, Stream* other, std::uint64_t point) noexcept {
  TM_TRY(check(id));
  if (other == nullptr || other->has_passed(point)) return {};
  if (id != kDefaultStream) {
    Stream* stream = nullptr;
    TM_TRY(find(id, &stream));
    if (stream == other) return {};
  } else if (other == Stream::current()) {
    return refuse_own_stream(id, "work on a stream cannot wait for that stream");
  }
  return submit(id, make_task<run_wait>(PointWait{other, point}));
}

void StreamTable::after_fork_in_child() noexcept {
  forget_current_stream();
  for (Slot& slot : slots_) {
    Stream* const stream = slot.stream.load(std::memory_order_relaxed);
    slot.live_serial.store(0, std::memory_order_release);
    slot.stream.store(nullptr, std::memory_order_relaxed);
    slot.busy = false;
    if (stream == nullptr) continue;
    stream->next_abandoned = abandoned_;
    abandoned_ = stream;
  }
  live_.store(0, std::memory_order_relaxed);
  mutex_.unlock();
}

bool StreamTable::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint32_t busy = 0;
  for (std::uint32_t number = 0; number <= kMaxStreams; ++number) {
    const Slot& slot = slots_[number];
    const std::uint32_t serial = slot.live_serial.load();
    if (serial != 0 && (number == 0 || !slot.busy || serial >= slot.next_serial)) return false;
    if (slot.busy && slot.stream.load() == nullptr) return false;
    busy += slot.busy ? 1 : 0;
  }
  return busy == live_.load();
}

}  // namespace tensormem::host

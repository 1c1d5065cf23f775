#include "resource/ring_log_sink.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/invariant.hpp"

namespace tensormem {

Status RingLogSink::make(std::size_t capacity, std::shared_ptr<RingLogSink>* sink) {
  if (capacity == 0) return Status::fail(Code::invalid_size, "a ring holds at least one record", capacity);
  try {
    sink->reset(new RingLogSink(std::vector<LogRecord>(capacity)));
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory for the ring of log records", capacity);
  } catch (const std::length_error&) {
    return Status::fail(Code::invalid_size, "a ring larger than any memory", capacity);
  }
  return {};
}

RingLogSink::~RingLogSink() { TM_WALK(is_valid()); }

bool RingLogSink::is_valid() const {
  const std::lock_guard lock(lock_);
  if (records_.empty() || next_ != taken_ % records_.size()) return false;
  const std::uint64_t kept = std::min<std::uint64_t>(taken_, records_.size());
  return std::all_of(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(kept),
                     [](const LogRecord& record) { return record.order != 0; });
}

std::vector<LogRecord> RingLogSink::snapshot() const {
  std::vector<LogRecord> records;
  records.reserve(records_.size());  // before the lock: it is for short sections
  {
    const std::lock_guard lock(lock_);
    const auto kept = static_cast<std::size_t>(std::min<std::uint64_t>(taken_, records_.size()));
    records.assign(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(kept));
  }
  std::ranges::sort(records, {}, &LogRecord::order);
  return records;
}

std::size_t RingLogSink::size() const {
  const std::lock_guard lock(lock_);
  return static_cast<std::size_t>(std::min<std::uint64_t>(taken_, records_.size()));
}

std::uint64_t RingLogSink::overwritten() const {
  const std::lock_guard lock(lock_);
  return taken_ > records_.size() ? taken_ - records_.size() : 0;
}

void RingLogSink::clear() {
  const std::lock_guard lock(lock_);
  next_ = 0;
  taken_ = 0;
}

}  // namespace tensormem

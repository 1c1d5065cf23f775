// Owns: the last records, in a ring of a fixed size: a new one takes the place of the oldest, and what was lost that
// way is counted. Taking a record allocates nothing and cannot fail. Must not know: where records come from.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/spinlock.hpp"
#include "resource/log_sink.hpp"

namespace tensormem {

class RingLogSink final : public LogSink {
 public:
  ~RingLogSink() override;
  // A ring holds at least one record.
  static Status make(std::size_t capacity, std::shared_ptr<RingLogSink>* sink);

  Status emit(const LogRecord& record) noexcept override {
    const std::lock_guard lock(lock_);
    records_[next_] = record;
    next_ = next_ + 1 == records_.size() ? 0 : next_ + 1;
    ++taken_;
    return {};
  }

  // The records that are still there, by order number.
  std::vector<LogRecord> snapshot() const;
  std::size_t size() const;
  std::size_t capacity() const { return records_.size(); }
  std::uint64_t overwritten() const;
  // Forgets the records and the count of lost ones.
  void clear();
  bool is_valid() const;

 private:
  explicit RingLogSink(std::vector<LogRecord> records) : records_(std::move(records)) {}

  mutable Spinlock lock_;
  ForkGuard fork_guard_{lock_};
  std::vector<LogRecord> records_;  // never resized
  std::size_t next_ = 0;
  std::uint64_t taken_ = 0;  // since the last clear
};

}  // namespace tensormem

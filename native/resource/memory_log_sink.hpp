// Owns: every record, in memory, until it is cleared. It grows without bound: for tests and short runs; the ring keeps
// the last ones only.
// Must not know: where records come from.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/log_sink.hpp"

namespace tensormem {

class MemoryLogSink final : public LogSink {
 public:
  ~MemoryLogSink() override;
  Status emit(const LogRecord& record) noexcept override;

  // All records, by order number.
  std::vector<LogRecord> snapshot() const;
  std::size_t size() const;
  void clear();
  bool is_valid() const;

 private:
  // Records lie in chunks that never move, so that a long log is not copied while others wait for the lock.
  static constexpr std::size_t kChunkRecords = 1024;
  using Chunk = std::unique_ptr<LogRecord[]>;

  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::vector<Chunk> chunks_;
  std::size_t size_ = 0;
};

}  // namespace tensormem

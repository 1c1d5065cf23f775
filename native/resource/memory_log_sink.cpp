#include "resource/memory_log_sink.hpp"

#include <algorithm>
#include <new>

namespace tensormem {

Status MemoryLogSink::emit(const LogRecord& record) noexcept {
  const std::lock_guard lock(mutex_);
  if (size_ == chunks_.size() * kChunkRecords) {
    try {
      chunks_.push_back(std::make_unique<LogRecord[]>(kChunkRecords));
    } catch (const std::bad_alloc&) {
      return Status::fail(Code::out_of_memory, "no memory for more log records", kChunkRecords * sizeof(LogRecord));
    }
  }
  chunks_[size_ / kChunkRecords][size_ % kChunkRecords] = record;
  ++size_;
  return {};
}

std::vector<LogRecord> MemoryLogSink::snapshot() const {
  std::vector<LogRecord> records;
  {
    const std::lock_guard lock(mutex_);
    records.reserve(size_);
    for (std::size_t i = 0; i < size_; ++i) records.push_back(chunks_[i / kChunkRecords][i % kChunkRecords]);
  }
  std::ranges::sort(records, {}, &LogRecord::order);
  return records;
}

std::size_t MemoryLogSink::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

void MemoryLogSink::clear() {
  std::vector<Chunk> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(chunks_);
  size_ = 0;
}

}  // namespace tensormem

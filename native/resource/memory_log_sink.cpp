#include "resource/memory_log_sink.hpp"

#include <algorithm>
#include <new>

#include "base/invariant.hpp"

namespace tensormem {

MemoryLogSink::~MemoryLogSink() { TM_WALK(is_valid()); }

bool MemoryLogSink::is_valid() const {
  const std::lock_guard lock(mutex_);
  if (size_ > chunks_.size() * kChunkRecords || chunks_.size() > size_ / kChunkRecords + 1) return false;
  for (std::size_t i = 0; i < size_; ++i) {
    if (chunks_[i / kChunkRecords][i % kChunkRecords].order == 0) return false;  // they count from 1
  }
  return true;
}

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

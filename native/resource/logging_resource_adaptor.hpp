// Owns: one record for every allocate, deallocate and reap that passes, whether it succeeds or fails, with a number
// that rises over the whole process. Logging never changes a result: a sink that fails costs its record and raises
// `dropped_records`, nothing else. Without a sink it only forwards.
// Must not know: what a sink does with records. Uses of blocks across streams are not logged.
#pragma once

#include <atomic>
#include <utility>

#include "resource/log_sink.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

class LoggingResourceAdaptor final : public ResourceAdaptor {
 public:
  // A null sink: nothing is recorded.
  LoggingResourceAdaptor(ResourcePtr upstream, LogSinkPtr sink)
      : ResourceAdaptor(std::move(upstream)), sink_(std::move(sink)) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  Status reap_pending() override;

  const LogSinkPtr& sink() const { return sink_; }
  std::uint64_t dropped_records() const { return dropped_.load(std::memory_order_relaxed); }
  Status flush() { return sink_ == nullptr ? Status() : sink_->flush(); }

 private:
  // The time, the thread and the next number.
  LogRecord stamped(LogAction action) const;
  void emit(LogRecord* record, const Status& result);

  const LogSinkPtr sink_;
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace tensormem

// Owns: the sink that hands every record to a function of the caller's.
// Must not know: what the function is written in. It is called without any lock of ours.
#pragma once

#include <functional>
#include <utility>

#include "resource/log_sink.hpp"

namespace tensormem {

class CallbackLogSink final : public LogSink {
 public:
  using Callback = std::function<Status(const LogRecord& record)>;

  explicit CallbackLogSink(Callback callback) : callback_(std::move(callback)) {}

  Status emit(const LogRecord& record) noexcept override { return callback_(record); }

 private:
  const Callback callback_;
};

}  // namespace tensormem

// Owns: one record of what a resource was asked and what it answered, as a plain value; and the place records go to.
// Must not know: resources, or what a sink does with a record.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "alloc/block.hpp"
#include "base/interned.hpp"
#include "base/status.hpp"
#include "driver/types.hpp"

namespace tensormem {

enum class LogAction : std::uint8_t { allocate = 0, deallocate = 1, reap = 2 };

struct LogRecord {
  std::uint64_t order = 0;        // strictly increasing over all resources of the process, from 1
  std::int64_t timestamp_ns = 0;  // wall clock: an allocation's end, a deallocation's beginning
  std::uint64_t address = 0;      // 0: there is none (a failed allocation, a reap)
  std::uint64_t nbytes = 0;       // as asked for, also when that failed; 0 for a reap
  std::uint64_t generation = 0;
  StreamId stream = kDefaultStream;  // the stream the call named
  const char* what = "";             // static text: why it failed
  std::uint32_t thread = 0;
  std::int32_t device = 0;
  TagId tag = kUntagged;
  std::int32_t driver_code = 0;
  LogAction action = LogAction::allocate;
  Code code = Code::ok;
  BlockState state = BlockState::live;  // what became of the block, if the call succeeded
};

static_assert(std::is_trivially_copyable_v<LogRecord> && sizeof(LogRecord) == 80);

class LogSink {
 public:
  LogSink() = default;
  virtual ~LogSink() = default;
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

  // Any thread, at any time; records of several threads may arrive out of order. A failure loses this record only.
  virtual Status emit(const LogRecord& record) noexcept = 0;
  // Everything taken so far reaches its destination.
  virtual Status flush() noexcept { return {}; }
};

using LogSinkPtr = std::shared_ptr<LogSink>;

}  // namespace tensormem

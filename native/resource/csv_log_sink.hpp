// Owns: a file in the format of RMM's logging adaptor, byte for byte, so that its tools read ours:
//   Thread,Time,Action,Pointer,Size,Stream
//   17515,21:13:33.836750,allocate,0x55db4f015200,1000,0          (free; allocate failure, with the pointer "(nil)")
// Thread is the system's number, Time is local, Stream is 0 or hexadecimal. The format has no row for a reap or for a
// refused free: those are counted in `skipped_records`, not written.
// Records are kept and written in batches, by order number: a row stands out of place only if its thread was overtaken
// by half a batch. What the file system refuses is kept and tried again; only when too much is waiting does a record
// fail. Must not know: where records come from.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/log_sink.hpp"

namespace tensormem {

struct CsvLogSinkOptions {
  bool overwrite = false;  // replace the file if there is one; otherwise that is refused
  // How many records are kept before the older half is written. 1: every record is written at once.
  std::size_t batch_records = 4096;
};

class CsvLogSink final : public LogSink {
 public:
  static Status open(const std::string& path, const CsvLogSinkOptions& options, std::shared_ptr<CsvLogSink>* sink);
  ~CsvLogSink() override;

  Status emit(const LogRecord& record) noexcept override;
  // Everything is in the file.
  Status flush() noexcept override;
  std::uint64_t skipped_records() const;
  bool is_valid() const;

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  CsvLogSink(File file, std::size_t batch_records);
  // Finds the record a place, or none. `*full`: it is time to write.
  Status take(const LogRecord& record, bool* full);
  // Writes the oldest records until `keep` are left. Holds `writing_`, and `mutex_` only to take them.
  Status write_down_to(std::size_t keep);
  Status write_batch(std::size_t keep);
  Status write_unwritten();
  void append_row(const LogRecord& record);
  void append_time(std::int64_t timestamp_ns);

  // More than this many batches waiting means that the file takes nothing any more.
  static constexpr std::size_t kMaxBatchesWaiting = 16;

  const std::size_t batch_records_;
  const std::int64_t owner_;  // the process that opened it: a forked child must not write the same rows again

  mutable std::mutex mutex_;  // guards the two below
  ForkGuard fork_guard_{mutex_};
  std::vector<LogRecord> waiting_;
  std::uint64_t skipped_ = 0;

  std::mutex writing_;  // guards the rest; taken before `mutex_`, and held over the file
  ForkGuard writing_fork_guard_{writing_};
  File file_;
  std::string unwritten_;  // rows, or the rest of one, that the file has not taken yet
  std::int64_t second_ = -1;
  char clock_[16] = {};  // the text of `second_`
};

}  // namespace tensormem

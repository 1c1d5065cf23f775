#include "resource/csv_log_sink.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <new>
#include <utility>

#include "base/blocking.hpp"
#include "base/invariant.hpp"

namespace tensormem {

namespace {

constexpr const char* kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr std::size_t kMaxRowBytes = 128;

// The action as RMM calls it; null when its format has none.
const char* action_text(const LogRecord& record) {
  const bool ok = record.code == Code::ok;
  if (record.action == LogAction::allocate) return ok ? "allocate" : "allocate failure";
  return record.action == LogAction::deallocate && ok ? "free" : nullptr;
}

void append_number(std::uint64_t number, int base, std::string* text) {
  char digits[24];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, number, base);
  text->append(digits, end.ptr);
}

Status no_memory() { return Status::fail(Code::out_of_memory, "no memory for more log records"); }

}  // namespace

Status CsvLogSink::open(const std::string& path, const CsvLogSinkOptions& options, std::shared_ptr<CsvLogSink>* sink) {
  if (options.batch_records == 0)
    return Status::fail(Code::invalid_size, "a batch has at least one record", options.batch_records);
  File file(std::fopen(path.c_str(), options.overwrite ? "we" : "wxe"), &std::fclose);
  if (file == nullptr) {
    if (errno == EEXIST)
      return Status::fail(Code::invalid_argument, "the log file exists already; ask to overwrite it, or name another");
    return Status::driver_error(errno, "fopen");
  }
  std::setvbuf(file.get(), nullptr, _IONBF, 0);  // the batches are the buffer
  try {
    std::shared_ptr<CsvLogSink> made(new CsvLogSink(std::move(file), options.batch_records));
    TM_TRY(made->flush());
    *sink = std::move(made);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  return {};
}

CsvLogSink::CsvLogSink(File file, std::size_t batch_records)
    : batch_records_(batch_records), owner_(getpid()), file_(std::move(file)), unwritten_(kHeader) {
  waiting_.reserve(std::min<std::size_t>(batch_records, 4096));
}

bool CsvLogSink::is_valid() const {
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr || batch_records_ == 0 || waiting_.size() > kMaxBatchesWaiting * batch_records_) return false;
  return std::ranges::all_of(waiting_, [](const LogRecord& record) { return record.order != 0; });
}

CsvLogSink::~CsvLogSink() {
  TM_WALK(is_valid());
  // Nobody is left to tell; what the file does not take now is lost.
  (void)flush().ok();
}

Status CsvLogSink::emit(const LogRecord& record) noexcept {
  bool full = false;
  Status taken = take(record, &full);
  if (taken.ok() && !full) [[likely]]
    return {};
  // The newer half stays: a record of a slower thread may still belong between them.
  Status written = write_down_to(batch_records_ / 2);
  if (taken.ok()) return {};  // it has its place and is written with the next batch, if not now
  TM_TRY(std::move(written));
  return take(record, &full);
}

Status CsvLogSink::flush() noexcept { return write_down_to(0); }

std::uint64_t CsvLogSink::skipped_records() const {
  const std::lock_guard lock(mutex_);
  return skipped_;
}

Status CsvLogSink::take(const LogRecord& record, bool* full) {
  const std::lock_guard lock(mutex_);
  if (action_text(record) == nullptr) {
    ++skipped_;
    return {};
  }
  if (waiting_.size() >= batch_records_ * kMaxBatchesWaiting) return no_memory();
  try {
    waiting_.push_back(record);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  *full = waiting_.size() >= batch_records_;
  return {};
}

Status CsvLogSink::write_down_to(std::size_t keep) {
  const BlockingRegion region;
  const std::lock_guard lock(writing_);
  try {
    return write_batch(keep);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

Status CsvLogSink::write_batch(std::size_t keep) {
  if (getpid() != owner_)
    return Status::fail(Code::invalid_argument, "the log belongs to the process that opened it, not to its child");
  // What is stuck goes first: if the file does not take it, no more is formatted.
  TM_TRY(write_unwritten());
  std::vector<LogRecord> batch;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() <= keep) return {};
    std::ranges::sort(waiting_, {}, &LogRecord::order);
    const auto end = waiting_.end() - static_cast<std::ptrdiff_t>(keep);
    unwritten_.reserve(static_cast<std::size_t>(end - waiting_.begin()) * kMaxRowBytes);
    batch.assign(waiting_.begin(), end);
    waiting_.erase(waiting_.begin(), end);
  }
  for (const LogRecord& record : batch) append_row(record);
  return write_unwritten();
}

// Keeps what the file does not take, so that no row is lost, torn or written twice.
Status CsvLogSink::write_unwritten() {
  if (unwritten_.empty()) return {};
  const std::size_t taken = std::fwrite(unwritten_.data(), 1, unwritten_.size(), file_.get());
  const int error = errno;
  if (taken == unwritten_.size()) {
    unwritten_.clear();
    return {};
  }
  unwritten_.erase(0, taken);
  std::clearerr(file_.get());
  return Status::driver_error(error, "fwrite");
}

void CsvLogSink::append_row(const LogRecord& record) {
  append_number(record.thread, 10, &unwritten_);
  unwritten_ += ',';
  append_time(record.timestamp_ns);
  unwritten_ += ',';
  unwritten_ += action_text(record);
  unwritten_ += record.address == 0 ? ",(nil)" : ",0x";
  if (record.address != 0) append_number(record.address, 16, &unwritten_);
  unwritten_ += ',';
  append_number(record.nbytes, 10, &unwritten_);
  unwritten_ += record.stream == kDefaultStream ? "," : ",0x";
  append_number(record.stream, 16, &unwritten_);
  unwritten_ += '\n';
}

void CsvLogSink::append_time(std::int64_t timestamp_ns) {
  const std::int64_t second = timestamp_ns / kNanosecondsPerSecond;
  if (second != second_) {
    const auto time = static_cast<std::time_t>(second);
    std::tm parts{};
    localtime_r(&time, &parts);
    std::strftime(clock_, sizeof clock_, "%H:%M:%S.", &parts);
    second_ = second;
  }
  unwritten_ += clock_;
  // With one digit more in front the zeros come by themselves.
  const std::size_t begin = unwritten_.size();
  append_number(static_cast<std::uint64_t>(1'000'000 + timestamp_ns % kNanosecondsPerSecond / 1000), 10, &unwritten_);
  unwritten_.erase(begin, 1);
}

}  // namespace tensormem

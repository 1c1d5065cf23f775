#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "resource/callback_log_sink.hpp"
#include "resource/csv_log_sink.hpp"
#include "resource/fault_injection_resource_adaptor.hpp"
#include "resource/logging_resource_adaptor.hpp"
#include "resource/memory_log_sink.hpp"
#include "resource/ring_log_sink.hpp"
#include "resource/wall_clock.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

// A name for a file that does not exist, in a folder of its own that goes with it.
class TemporaryFile {
 public:
  TemporaryFile() {
    char pattern[] = "/tmp/tensormem-log-XXXXXX";
    TM_CHECK(mkdtemp(pattern) != nullptr);
    folder_ = pattern;
  }
  ~TemporaryFile() {
    std::remove(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/log.csv"; }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }
  std::vector<std::string> lines() const {
    std::istringstream all(text());
    std::vector<std::string> found;
    for (std::string line; std::getline(all, line);) found.push_back(line);
    return found;
  }

 private:
  std::string folder_;
};

// Whether a line is a row: a thread, a time of day with microseconds, and this behind it.
bool is_row(const std::string& line, const std::string& rest) {
  unsigned thread = 0;
  unsigned hours = 0;
  unsigned minutes = 0;
  unsigned seconds = 0;
  int begin = 0;
  int fraction = 0;
  int end = 0;
  const int fields = std::sscanf(line.c_str(), "%u,%n%2u:%2u:%2u.%n%*6[0-9]%n,", &thread, &begin, &hours, &minutes,
                                 &seconds, &fraction, &end);
  return fields == 4 && fraction - begin == 9 && end - fraction == 6 && hours < 24 && minutes < 60 && seconds < 61 &&
         line.substr(static_cast<std::size_t>(end)) == "," + rest;
}

std::string hex(std::uint64_t number) {
  std::ostringstream text;
  text << "0x" << std::hex << number;
  return text.str();
}

LogRecord numbered(std::uint64_t order) {
  LogRecord record;
  record.order = order;
  record.address = 0x1000;
  record.nbytes = order;
  return record;
}

std::vector<std::uint64_t> orders(const std::vector<LogRecord>& records) {
  std::vector<std::uint64_t> found;
  for (const LogRecord& record : records) found.push_back(record.order);
  return found;
}

std::shared_ptr<CsvLogSink> open_csv(const std::string& path, const CsvLogSinkOptions& options = {}) {
  std::shared_ptr<CsvLogSink> sink;
  TM_CHECK(CsvLogSink::open(path, options, &sink).ok());
  return sink;
}

constexpr const char* kHeader = "Thread,Time,Action,Pointer,Size,Stream";

}  // namespace

TM_TEST("one record for each allocate, deallocate and reap, with everything that is known") {
  auto leaf = make_leaf();
  auto sink = std::make_shared<MemoryLogSink>();
  LoggingResourceAdaptor logged(leaf, sink);
  GatedStream stream;
  const TagId tag = intern_tag("logged");
  const std::int64_t before = wall_clock_ns();
  const Block block = allocate(logged, 1000, stream.id(), tag);
  TM_CHECK(deallocate(logged, block, stream.id()).ok());
  stream.pass();
  TM_CHECK(logged.reap_pending().ok());

  const std::vector<LogRecord> records = sink->snapshot();
  TM_CHECK(records.size() == 3);
  for (int i = 0; i < 2; ++i) {
    const LogRecord& record = records[static_cast<std::size_t>(i)];
    TM_CHECK(record.action == (i == 0 ? LogAction::allocate : LogAction::deallocate));
    TM_CHECK(record.address == block.address && record.nbytes == 1000 && record.generation == block.generation);
    TM_CHECK(record.stream == stream.id() && record.tag == tag && record.device == 0);
    TM_CHECK(record.thread == static_cast<std::uint32_t>(gettid()));
    TM_CHECK(record.timestamp_ns >= before && record.timestamp_ns <= wall_clock_ns());
    TM_CHECK(record.code == Code::ok && record.what[0] == '\0');
  }
  TM_CHECK(records[0].state == BlockState::live && records[1].state == BlockState::retired);
  TM_CHECK(records[2].action == LogAction::reap && records[2].address == 0 && records[2].nbytes == 0);
  TM_CHECK(records[0].order < records[1].order && records[1].order < records[2].order);
}

TM_TEST("failures are recorded with what was asked for and why, and are passed on unchanged") {
  auto sink = std::make_shared<MemoryLogSink>();
  LoggingResourceAdaptor logged(
      std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.nth = 1}), sink);
  Block block{};
  const Status refused = logged.allocate({.nbytes = 1234}, &block);
  TM_CHECK(refused.code() == Code::out_of_memory && refused.failure().facts[0] == 1234);
  block = allocate(logged, 10);
  TM_CHECK(deallocate(logged, block).ok());
  TM_CHECK(deallocate(logged, block).code() == Code::use_after_free);
  const std::vector<LogRecord> records = sink->snapshot();
  TM_CHECK(records.size() == 4);
  TM_CHECK(records[0].code == Code::out_of_memory && records[0].nbytes == 1234 && records[0].address == 0);
  TM_CHECK(std::string(records[0].what) == "a planned fault" && records[0].generation == 0);
  TM_CHECK(records[3].code == Code::use_after_free && records[3].generation == block.generation);
  TM_CHECK(logged.dropped_records() == 0);
}

TM_TEST("a sink that fails changes no result and is only counted") {
  auto leaf = make_leaf();
  int calls = 0;
  LoggingResourceAdaptor logged(leaf, std::make_shared<CallbackLogSink>([&](const LogRecord&) {
                                  return ++calls % 2 == 0 ? Status::fail(Code::invalid_argument, "the sink raised")
                                                          : Status();
                                }));
  const Block block = allocate(logged, 10);
  TM_CHECK(deallocate(logged, block).ok());
  TM_CHECK(logged.reap_pending().ok());
  TM_CHECK(deallocate(logged, block).code() == Code::use_after_free);
  TM_CHECK(calls == 4 && logged.dropped_records() == 2 && leaf->bytes_outstanding() == 0);
}

TM_TEST("without a sink everything is forwarded and nothing recorded") {
  LoggingResourceAdaptor logged(make_leaf(), nullptr);
  TM_CHECK(deallocate(logged, allocate(logged, 10)).ok());
  TM_CHECK(logged.reap_pending().ok() && logged.flush().ok() && logged.dropped_records() == 0);
}

TM_TEST(
    "order numbers are unique and rise over two adaptors and eight threads, and a free comes before the next owner") {
  auto sink = std::make_shared<MemoryLogSink>();
  auto leaf = make_leaf();
  LoggingResourceAdaptor one(leaf, sink);
  LoggingResourceAdaptor two(leaf, sink);
  on_threads(8, [&](int number) {
    LoggingResourceAdaptor& mine = number % 2 == 0 ? one : two;
    for (int i = 0; i < 300; ++i) TM_CHECK(deallocate(mine, allocate(mine, 512)).ok());
  });
  const std::vector<LogRecord> records = sink->snapshot();
  TM_CHECK(records.size() == 8 * 300 * 2 && sink->size() == records.size());
  std::map<std::uint64_t, std::uint64_t> owners;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const LogRecord& record = records[i];
    TM_CHECK(i == 0 || records[i - 1].order < record.order);
    if (record.action == LogAction::allocate) {
      TM_CHECK(owners.emplace(record.address, record.generation).second);
    } else {
      TM_CHECK(owners[record.address] == record.generation);
      owners.erase(record.address);
    }
  }
  TM_CHECK(owners.empty());
  sink->clear();
  TM_CHECK(sink->size() == 0 && sink->snapshot().empty());
}

TM_TEST("a ring keeps the last records, by order number, and counts the lost ones") {
  std::shared_ptr<RingLogSink> ring;
  TM_CHECK(RingLogSink::make(0, &ring).code() == Code::invalid_size && ring == nullptr);
  TM_CHECK(RingLogSink::make(3, &ring).ok());
  TM_CHECK(ring->size() == 0 && ring->capacity() == 3 && ring->snapshot().empty());
  for (const std::uint64_t order : {1, 3, 2}) TM_CHECK(ring->emit(numbered(order)).ok());
  TM_CHECK((orders(ring->snapshot()) == std::vector<std::uint64_t>{1, 2, 3}) && ring->overwritten() == 0);
  for (const std::uint64_t order : {4, 5}) TM_CHECK(ring->emit(numbered(order)).ok());
  TM_CHECK((orders(ring->snapshot()) == std::vector<std::uint64_t>{2, 4, 5}));
  TM_CHECK(ring->size() == 3 && ring->overwritten() == 2);
  ring->clear();
  TM_CHECK(ring->size() == 0 && ring->overwritten() == 0);
  TM_CHECK(ring->emit(numbered(6)).ok() && ring->size() == 1);
}

TM_TEST("eight threads fill a ring and none of its records is torn") {
  std::shared_ptr<RingLogSink> ring;
  TM_CHECK(RingLogSink::make(64, &ring).ok());
  LoggingResourceAdaptor logged(make_leaf(), ring);
  on_threads(8, [&](int number) {
    for (int i = 0; i < 200; ++i) {
      TM_CHECK(deallocate(logged, allocate(logged, 64)).ok());
      if (number == 0 && i % 20 == 0) TM_CHECK(ring->snapshot().size() <= 64);
    }
  });
  TM_CHECK(ring->overwritten() == 8 * 200 * 2 - 64);
  for (const LogRecord& record : ring->snapshot()) TM_CHECK(record.nbytes == 64 && record.order != 0);
}

TM_TEST("the file is in RMM's format, byte for byte") {
  const TemporaryFile file;
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  auto sink = open_csv(file.path());
  TM_CHECK(file.text() == std::string(kHeader) + "\n");
  LoggingResourceAdaptor logged(
      std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.nth = 3}), sink);
  const Block one = allocate(logged, 1000);
  const Block two = allocate(logged, 5, stream);
  TM_CHECK(try_allocate(logged, 4194304) == Code::out_of_memory);
  TM_CHECK(deallocate(logged, two, stream).ok() && deallocate(logged, one).ok());
  TM_CHECK(deallocate(logged, one).code() == Code::use_after_free);  // RMM has no row for these two
  TM_CHECK(logged.reap_pending().ok());
  TM_CHECK(file.lines().size() == 1 && logged.flush().ok());

  const std::vector<std::string> expected{
      "allocate," + hex(one.address) + ",1000,0", "allocate," + hex(two.address) + ",5," + hex(stream),
      "allocate failure,(nil),4194304,0", "free," + hex(two.address) + ",5," + hex(stream),
      "free," + hex(one.address) + ",1000,0"};
  const std::vector<std::string> lines = file.lines();
  TM_CHECK(lines.size() == 6 && lines[0] == kHeader);
  for (std::size_t i = 0; i < expected.size() && i + 1 < lines.size(); ++i) {
    TM_CHECK(is_row(lines[i + 1], expected[i]));
    TM_CHECK(lines[i + 1].starts_with(std::to_string(gettid()) + ","));
  }
  TM_CHECK(sink->skipped_records() == 2 && logged.dropped_records() == 0);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("an existing file is refused and kept, unless overwriting is asked for") {
  const TemporaryFile file;
  std::ofstream(file.path()) << "precious";
  std::shared_ptr<CsvLogSink> sink;
  TM_CHECK(CsvLogSink::open(file.path(), {}, &sink).code() == Code::invalid_argument && sink == nullptr);
  TM_CHECK(file.text() == "precious");
  sink = open_csv(file.path(), {.overwrite = true});
  TM_CHECK(file.text() == std::string(kHeader) + "\n");
}

TM_TEST("a file that cannot be opened or written is refused with the system's reason") {
  std::shared_ptr<CsvLogSink> sink;
  const Status missing = CsvLogSink::open("/tmp/no such folder/log.csv", {}, &sink);
  TM_CHECK(missing.code() == Code::driver_error && missing.failure().driver_code == ENOENT);
  const Status full = CsvLogSink::open("/dev/full", {.overwrite = true}, &sink);
  TM_CHECK(full.code() == Code::driver_error && full.failure().driver_code == ENOSPC && sink == nullptr);
  const TemporaryFile file;
  TM_CHECK(CsvLogSink::open(file.path(), {.batch_records = 0}, &sink).code() == Code::invalid_size);
}

TM_TEST("batches are written by order number, the older half first, and the end of the sink writes the rest") {
  const TemporaryFile file;
  {
    auto sink = open_csv(file.path(), {.batch_records = 4});
    for (const std::uint64_t order : {2, 1, 4}) TM_CHECK(sink->emit(numbered(order)).ok());
    TM_CHECK(file.lines().size() == 1);
    TM_CHECK(sink->emit(numbered(5)).ok());
    TM_CHECK(file.lines().size() == 3);  // 1 and 2; 3 may still come
    TM_CHECK(sink->emit(numbered(3)).ok());
  }
  const std::vector<std::string> lines = file.lines();
  TM_CHECK(lines.size() == 6);
  for (std::size_t i = 1; i < lines.size(); ++i)
    TM_CHECK(lines[i].ends_with(",allocate,0x1000," + std::to_string(i) + ",0"));
}

TM_TEST("with batches of one, each record is in the file at once") {
  const TemporaryFile file;
  auto sink = open_csv(file.path(), {.batch_records = 1});
  for (std::uint64_t order = 1; order <= 3; ++order) {
    TM_CHECK(sink->emit(numbered(order)).ok());
    TM_CHECK(file.lines().size() == order + 1);
  }
}

TM_TEST("what a full disk refuses is kept, counted when too much waits, and written whole later") {
  const TemporaryFile file;
  auto sink = open_csv(file.path(), {.batch_records = 2});
  LoggingResourceAdaptor logged(make_leaf(), sink);
  rlimit old{};
  TM_CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{60, old.rlim_max};  // in the middle of the first row
  TM_CHECK(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  std::vector<Block> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(allocate(logged, 10));
  TM_CHECK(logged.flush().code() == Code::driver_error);
  const std::uint64_t dropped = logged.dropped_records();
  TM_CHECK(dropped > 0 && dropped < 50);
  TM_CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
  std::signal(SIGXFSZ, old_handler);
  TM_CHECK(logged.flush().ok());
  const std::vector<std::string> lines = file.lines();
  TM_CHECK(lines.size() == 1 + 50 - dropped);
  for (std::size_t i = 1; i < lines.size(); ++i)
    TM_CHECK(is_row(lines[i], "allocate," + hex(blocks[i - 1].address) + ",10,0"));
  for (const Block& block : blocks) TM_CHECK(deallocate(logged, block).ok());
}

TM_TEST("eight threads write one file and every row is whole") {
  const TemporaryFile file;
  auto sink = open_csv(file.path(), {.batch_records = 64});
  LoggingResourceAdaptor logged(make_leaf(), sink);
  on_threads(8, [&](int) {
    for (int i = 0; i < 100; ++i) TM_CHECK(deallocate(logged, allocate(logged, 10)).ok());
  });
  TM_CHECK(logged.flush().ok() && logged.dropped_records() == 0);
  const std::vector<std::string> lines = file.lines();
  TM_CHECK(lines.size() == 1 + 8 * 100 * 2);
  std::map<std::string, int> balance;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::size_t pointer = lines[i].find("0x");
    const std::string address = lines[i].substr(pointer, lines[i].find(',', pointer) - pointer);
    const bool taken = lines[i].find(",allocate,") != std::string::npos;
    TM_CHECK(is_row(lines[i], (taken ? "allocate," : "free,") + address + ",10,0"));
    balance[address] += taken ? 1 : -1;
  }
  for (const auto& [address, count] : balance) TM_CHECK(count == 0);
}

TM_TEST("a forked child has its own thread number and writes none of its parent's rows") {
  const TemporaryFile file;
  auto sink = open_csv(file.path());
  TM_CHECK(thread_number() == static_cast<std::uint32_t>(gettid()));
  TM_CHECK(sink->emit(numbered(1)).ok());
  const pid_t child = fork();
  if (child == 0) {
    const bool right = thread_number() == static_cast<std::uint32_t>(gettid());
    const bool refused = sink->flush().code() == Code::invalid_argument;
    sink.reset();
    _exit(right && refused ? 0 : 1);
  }
  int status = -1;
  TM_CHECK(waitpid(child, &status, 0) == child && status == 0);
  TM_CHECK(file.lines().size() == 1);
  sink.reset();
  TM_CHECK(file.lines().size() == 2);
}

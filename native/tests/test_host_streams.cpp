// Streams of the host driver: order, overlap, refusal, threads and faults.
#include <pthread.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/check.hpp"
#include "tests/host_process.hpp"
#include "tests/host_streams.hpp"

namespace tensormem {
namespace {

using test::Gate;
using test::is_done;
using test::new_event;
using test::new_stream;
using test::ProcessState;
using test::set_flag;

struct Call {
  int number;
  std::vector<int>* order;
  std::vector<pthread_t>* threads;
  static void note(void* call) {
    const Call& self = *static_cast<Call*>(call);
    self.order->push_back(self.number);
    self.threads->push_back(pthread_self());
  }
};

TM_TEST("the default stream runs work in place before the call returns") {
  std::vector<int> order;
  std::vector<pthread_t> threads;
  Call call{1, &order, &threads};
  TM_CHECK(host_driver().launch_host(&Call::note, &call, kDefaultStream).ok());
  TM_CHECK(order.size() == 1 && pthread_equal(threads[0], pthread_self()));
  bool done = false;
  TM_CHECK(host_driver().stream_query(kDefaultStream, &done).ok() && done);
  TM_CHECK(host_driver().stream_synchronize(kDefaultStream).ok());
  TM_CHECK(host_driver().stream_is_valid(kDefaultStream));
}

TM_TEST("work on a stream runs first in, first out, on one thread of its own") {
  const StreamId stream = new_stream();
  constexpr int kCalls = 5000;
  std::vector<int> order;
  std::vector<pthread_t> threads;
  std::vector<Call> calls;
  for (int i = 0; i < kCalls; ++i) calls.push_back(Call{i, &order, &threads});
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  for (Call& call : calls) TM_CHECK(host_driver().launch_host(&Call::note, &call, stream).ok());
  TM_CHECK(order.empty());
  gate.let_go();
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(order.size() == kCalls);
  for (int i = 0; i < kCalls; ++i) TM_CHECK(order[i] == i && pthread_equal(threads[i], threads[0]));
  TM_CHECK(!pthread_equal(threads[0], pthread_self()));
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("a stream starts its thread with its first work and ends it when destroyed") {
  const ProcessState before = ProcessState::now();
  const StreamId stream = new_stream();
  TM_CHECK(before.is_restored());
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(ran.load() && ProcessState::now().threads == before.threads + 1);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(before.threads_are_restored());
}

TM_TEST("two streams overlap") {
  const StreamId first = new_stream();
  const StreamId second = new_stream();
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, first).ok());
  gate.wait_until_entered();
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, second).ok());
  TM_CHECK(host_driver().stream_synchronize(second).ok());
  TM_CHECK(ran.load());
  bool done = true;
  TM_CHECK(host_driver().stream_query(first, &done).ok() && !done);
  gate.let_go();
  TM_CHECK(host_driver().stream_destroy(first).ok());
  TM_CHECK(host_driver().stream_destroy(second).ok());
}

TM_TEST("destroying a stream waits for its work") {
  const StreamId stream = new_stream();
  Gate gate;
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
  std::atomic<bool> valid_meanwhile{false};
  std::thread opener([&] {
    bool done = false;
    while (host_driver().stream_query(stream, &done).ok()) std::this_thread::yield();
    valid_meanwhile = host_driver().stream_is_valid(stream);
    gate.let_go();
  });
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(ran.load() && valid_meanwhile.load() && !host_driver().stream_is_valid(stream));
  opener.join();
}

void check_refused_everywhere(StreamId stream) {
  HostDriver& driver = host_driver();
  EventHandle event = new_event();
  std::uint64_t word = 0;
  char from[8] = {};
  char to[8] = {};
  const Pitched source{reinterpret_cast<std::uint64_t>(from)};
  const Pitched destination{reinterpret_cast<std::uint64_t>(to)};
  bool done = false;
  StreamId imported = 0;
  TM_CHECK(!driver.stream_is_valid(stream));
  TM_CHECK(driver.stream_destroy(stream).code() == Code::stream_misuse);
  TM_CHECK(driver.stream_synchronize(stream).code() == Code::stream_misuse);
  TM_CHECK(driver.stream_query(stream, &done).code() == Code::stream_misuse);
  TM_CHECK(driver.stream_export(stream, &word).code() == Code::stream_misuse);
  TM_CHECK(driver.stream_import(0, stream, &imported).code() == Code::stream_misuse);
  TM_CHECK(driver.event_record(event, stream).code() == Code::stream_misuse);
  TM_CHECK(driver.stream_wait_event(stream, event).code() == Code::stream_misuse);
  TM_CHECK(driver.copy(destination, source, CopyShape{8}, stream).code() == Code::stream_misuse);
  TM_CHECK(driver.fill(destination, CopyShape{8}, 1, 1, stream).code() == Code::stream_misuse);
  TM_CHECK(driver.launch_host(&set_flag, &done, stream).code() == Code::stream_misuse);
  TM_CHECK(driver.allocate_async(0, kNoPool, 64, stream, &word).code() == Code::stream_misuse);
  TM_CHECK(driver.prefetch(source.address, 8, 0, stream).code() == Code::stream_misuse);
  std::uint64_t block = 0;
  TM_CHECK(driver.allocate_async(0, kNoPool, 64, kDefaultStream, &block).ok());
  const Status refused = driver.deallocate_async(0, block, 64, stream);
  TM_CHECK(refused.code() == Code::stream_misuse && refused.failure().facts[0] == stream);
  TM_CHECK(driver.deallocate_async(0, block, 64, kDefaultStream).ok());
  TM_CHECK(is_done(event) && word == 0 && imported == 0 && to[0] == 0);
  TM_CHECK(driver.event_destroy(event).ok());
}

TM_TEST("a destroyed stream is refused by every function and never mistaken for its successor") {
  std::vector<StreamId> seen;
  for (int i = 0; i < 3000; ++i) {  // more than there are slots
    const StreamId stream = new_stream();
    TM_CHECK(host_driver().stream_is_valid(stream));
    TM_CHECK(host_driver().stream_destroy(stream).ok());
    seen.push_back(stream);
  }
  const StreamId successor = new_stream();
  for (const StreamId stream : seen) TM_CHECK(stream != successor && !host_driver().stream_is_valid(stream));
  check_refused_everywhere(seen.front());
  check_refused_everywhere(seen.back());
  TM_CHECK(host_driver().stream_destroy(successor).ok());
}

TM_TEST("made-up stream ids are refused") {
  for (const StreamId stream : {StreamId{1}, StreamId{1} << 32, ~StreamId{0}, StreamId{0x7fff'ffff'0000'0001},
                                (StreamId{1} << 32) | 5000, (StreamId{0} << 32) | 1024}) {
    check_refused_everywhere(stream);
  }
}

TM_TEST("the default stream cannot be destroyed, and devices other than 0 have no streams") {
  TM_CHECK(host_driver().stream_destroy(kDefaultStream).code() == Code::stream_misuse);
  StreamId stream = 7;
  EventHandle event = nullptr;
  TM_CHECK(host_driver().stream_create(1, &stream).code() == Code::invalid_argument && stream == 7);
  TM_CHECK(host_driver().event_create(-1, &event).code() == Code::invalid_argument && event == nullptr);
  TM_CHECK(host_driver().launch_host(nullptr, nullptr, kDefaultStream).code() == Code::invalid_argument);
}

struct SelfCalls {
  StreamId stream;
  EventHandle event;
  std::atomic<bool> recorded{false};
  Code destroy = Code::ok;
  Code synchronize = Code::ok;
  Code wait = Code::ok;
  Code block = Code::ok;
  Code shutdown = Code::ok;
  static void run(void* calls) {
    SelfCalls& self = *static_cast<SelfCalls*>(calls);
    self.recorded.wait(false);
    self.destroy = host_driver().stream_destroy(self.stream).code();
    self.synchronize = host_driver().stream_synchronize(self.stream).code();
    self.wait = host_driver().event_synchronize(self.event).code();
    self.block = host_driver().stream_wait_event(kDefaultStream, self.event).code();
    self.shutdown = host_driver().shutdown().code();
  }
};

TM_TEST("work that would wait for its own stream is refused instead of hanging") {
  SelfCalls calls{new_stream(), new_event()};
  TM_CHECK(host_driver().launch_host(&SelfCalls::run, &calls, calls.stream).ok());
  TM_CHECK(host_driver().event_record(calls.event, calls.stream).ok());
  calls.recorded.store(true);
  calls.recorded.notify_all();
  TM_CHECK(host_driver().stream_synchronize(calls.stream).ok());
  TM_CHECK(calls.destroy == Code::stream_misuse && calls.synchronize == Code::stream_misuse);
  TM_CHECK(calls.wait == Code::stream_misuse && calls.block == Code::stream_misuse);
  TM_CHECK(calls.shutdown == Code::stream_misuse);
  TM_CHECK(host_driver().stream_destroy(calls.stream).ok());
  TM_CHECK(host_driver().event_destroy(calls.event).ok());
}

TM_TEST("beyond the limit on streams the failure has the limit, and a destroyed stream makes room") {
  std::vector<StreamId> streams;
  for (std::uint32_t i = 0; i < host::kMaxStreams; ++i) streams.push_back(new_stream());
  StreamId extra = 0;
  const Status refused = host_driver().stream_create(0, &extra);
  TM_CHECK(refused.code() == Code::out_of_budget && refused.failure().facts[3] == host::kMaxStreams && extra == 0);
  TM_CHECK(host_driver().stream_destroy(streams.back()).ok());
  streams.back() = new_stream();
  TM_CHECK(host_driver().is_valid());
  for (const StreamId stream : streams) TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(host_driver().counters().streams == 0);
}

TM_TEST("exported handles come back as the stream they were made from") {
  const StreamId stream = new_stream();
  std::uint64_t handle = 0;
  StreamId back = 0;
  TM_CHECK(host_driver().stream_export(stream, &handle).ok());
  TM_CHECK(host_driver().stream_import(0, handle, &back).ok() && back == stream);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("threads may use a stream while another destroys it") {
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const StreamId stream = new_stream();
    std::atomic<int> ran{0};
    std::atomic<int> accepted{0};
    auto use = [&] {
      EventHandle event = new_event();
      for (int i = 0; i < 20; ++i) {
        const Status queued = host_driver().launch_host(
            [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &ran, stream);
        if (queued.ok()) accepted.fetch_add(1);
        TM_CHECK(queued.ok() || queued.code() == Code::stream_misuse);
        const Status recorded = host_driver().event_record(event, stream);
        TM_CHECK(recorded.ok() || recorded.code() == Code::stream_misuse);
        TM_CHECK(host_driver().event_synchronize(event).ok());
        const Status synced = host_driver().stream_synchronize(stream);
        TM_CHECK(synced.ok() || synced.code() == Code::stream_misuse);
      }
      TM_CHECK(host_driver().event_destroy(event).ok());
    };
    std::thread one(use);
    std::thread two(use);
    const bool won = host_driver().stream_destroy(stream).ok();
    one.join();
    two.join();
    TM_CHECK(won && ran.load() == accepted.load());
  }
  TM_CHECK(host_driver().counters().streams == 0 && host_driver().counters().events == 0);
}

TM_TEST("of several threads that destroy one stream exactly one succeeds") {
  for (int round = 0; round < 200; ++round) {
    const StreamId stream = new_stream();
    std::atomic<int> winners{0};
    auto destroy = [&] { winners.fetch_add(host_driver().stream_destroy(stream).ok() ? 1 : 0); };
    std::thread one(destroy);
    std::thread two(destroy);
    one.join();
    two.join();
    TM_CHECK(winners.load() == 1);
  }
}

TM_TEST("shutdown finishes all work, ends all threads, and streams can be made again") {
  const ProcessState before = ProcessState::now();
  std::atomic<int> ran{0};
  for (int i = 0; i < 8; ++i) {
    TM_CHECK(
        host_driver()
            .launch_host([](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &ran, new_stream())
            .ok());
  }
  TM_CHECK(host_driver().shutdown().ok());
  TM_CHECK(ran.load() == 8 && host_driver().counters().streams == 0 && before.threads_are_restored());
  const StreamId again = new_stream();
  TM_CHECK(host_driver()
               .launch_host([](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &ran, again)
               .ok());
  TM_CHECK(host_driver().stream_destroy(again).ok() && ran.load() == 9);
}

// --- Faults -------------------------------------------------------------------------------------------------------

void use_two_streams() {
  HostDriver& driver = host_driver();
  StreamId first = 0;
  StreamId second = 0;
  EventHandle event = nullptr;
  std::atomic<bool> ran{false};
  char from[64] = {1};
  char to[64] = {};
  const bool has_first = driver.stream_create(0, &first).ok();
  const bool has_second = driver.stream_create(0, &second).ok();
  const bool has_event = driver.event_create(0, &event).ok();
  if (has_first) {
    const Pitched source{reinterpret_cast<std::uint64_t>(from)};
    const Pitched destination{reinterpret_cast<std::uint64_t>(to)};
    const bool copied = driver.copy(destination, source, CopyShape{64}, first).ok();
    TM_CHECK(driver.stream_synchronize(first).ok() && to[0] == (copied ? 1 : 0));
    std::uint64_t block = 0;
    if (driver.allocate_async(0, kNoPool, 4096, first, &block).ok() &&
        !driver.deallocate_async(0, block, 4096, first).ok()) {
      TM_CHECK(driver.deallocate_async(0, block, 4096, kDefaultStream).ok());
    }
  }
  if (has_first && has_event) TM_CHECK(driver.event_record(event, first).ok());
  if (has_second && has_event) (void)driver.stream_wait_event(second, event).ok();
  if (has_second) (void)driver.launch_host(&set_flag, &ran, second).ok();
  if (has_first) TM_CHECK(driver.stream_destroy(first).ok());
  if (has_second) TM_CHECK(driver.stream_destroy(second).ok());
  if (has_event) TM_CHECK(driver.event_destroy(event).ok());
}

TM_TEST("every system call behind streams may fail and nothing leaks") {
  TM_CHECK(test::fail_every_call(use_two_streams, ENOMEM) >= 3);
  TM_CHECK(test::fail_every_call(use_two_streams, EAGAIN) >= 3);
}

TM_TEST("a thread that cannot be started is told with the errno, and the work is not queued") {
  const StreamId stream = new_stream();
  std::atomic<bool> ran{false};
  host::fault_plan::arm(host::SystemCall::create_thread, 1, EAGAIN);
  const Status refused = host_driver().launch_host(&set_flag, &ran, stream);
  host::fault_plan::disarm();
  TM_CHECK(refused.code() == Code::driver_error && refused.failure().driver_code == EAGAIN);
  TM_CHECK(host_driver().stream_synchronize(stream).ok() && !ran.load());
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
  TM_CHECK(host_driver().stream_destroy(stream).ok() && ran.load());
}

TM_TEST("fault plans name their calls") {
  namespace plan = host::fault_plan;
  TM_CHECK(plan::kind_count() > 10 && plan::kind_from_name("any") == 0 && plan::kind_from_name("potato") == -1);
  TM_CHECK(plan::kind_from_name(nullptr) == -1 && plan::kind_name(-1) == nullptr &&
           plan::kind_name(plan::kind_count()) == nullptr);
  for (int kind = 0; kind < plan::kind_count(); ++kind) TM_CHECK(plan::kind_from_name(plan::kind_name(kind)) == kind);
}

}  // namespace
}  // namespace tensormem

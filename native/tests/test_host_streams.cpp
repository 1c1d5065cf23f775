// Streams and events of the host driver: order, overlap, refusal, forks, exits and faults.
#include <pthread.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/check.hpp"
#include "tests/host_process.hpp"

namespace tensormem {
namespace {

using test::ProcessState;

// A host function that waits until it is let go, so that tests decide when a stream is busy.
struct Gate {
  std::atomic<bool> entered{false};
  std::atomic<bool> open{false};

  static void pass(void* gate) {
    Gate& self = *static_cast<Gate*>(gate);
    self.entered.store(true);
    self.entered.notify_all();
    self.open.wait(false);
  }
  void wait_until_entered() { entered.wait(false); }
  void let_go() {
    open.store(true);
    open.notify_all();
  }
};

StreamId new_stream() {
  StreamId stream = kDefaultStream;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  return stream;
}

EventHandle new_event() {
  EventHandle event = nullptr;
  TM_CHECK(host_driver().event_create(0, &event).ok());
  return event;
}

bool is_done(EventHandle event) {
  bool done = false;
  TM_CHECK(host_driver().event_query(event, &done).ok());
  return done;
}

void set_flag(void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }

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
  const std::uint64_t before = ProcessState::now().threads;
  const StreamId stream = new_stream();
  TM_CHECK(ProcessState::now().threads == before);
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(ran.load() && ProcessState::now().threads == before + 1);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(ProcessState::now().threads == before);
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
  std::thread opener([&] {
    while (host_driver().stream_is_valid(stream)) std::this_thread::yield();
    gate.let_go();
  });
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(ran.load());
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
  TM_CHECK(driver.allocate_async(0, 64, stream, &word).code() == Code::stream_misuse);
  TM_CHECK(driver.prefetch(source.address, 8, 0, stream).code() == Code::stream_misuse);
  std::uint64_t block = 0;
  TM_CHECK(driver.allocate_async(0, 64, kDefaultStream, &block).ok());
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

TM_TEST("an event is done when its stream has passed it") {
  const StreamId stream = new_stream();
  EventHandle event = new_event();
  TM_CHECK(is_done(event));  // never recorded
  TM_CHECK(host_driver().event_synchronize(event).ok());
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(host_driver().event_record(event, stream).ok());
  TM_CHECK(!is_done(event));
  gate.let_go();
  TM_CHECK(host_driver().event_synchronize(event).ok());
  TM_CHECK(is_done(event));
  // On an idle stream the point is passed at once; on the default stream always.
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(host_driver().event_record(event, stream).ok() && is_done(event));
  TM_CHECK(host_driver().event_record(event, kDefaultStream).ok() && is_done(event));
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(host_driver().event_destroy(event).ok());
}

TM_TEST("a stream waits for the point the event marked when the wait was queued") {
  const StreamId first = new_stream();
  const StreamId second = new_stream();
  EventHandle event = new_event();
  Gate early;
  Gate late;
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&Gate::pass, &early, first).ok());
  TM_CHECK(host_driver().event_record(event, first).ok());
  TM_CHECK(host_driver().launch_host(&Gate::pass, &late, first).ok());
  TM_CHECK(host_driver().stream_wait_event(second, event).ok());
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, second).ok());
  TM_CHECK(host_driver().event_record(event, first).ok());  // recorded again, later: the wait does not care
  TM_CHECK(!ran.load());
  early.let_go();
  TM_CHECK(host_driver().stream_synchronize(second).ok());
  TM_CHECK(ran.load() && !is_done(event));
  late.let_go();
  TM_CHECK(host_driver().event_synchronize(event).ok());
  // A stream never waits for itself.
  TM_CHECK(host_driver().stream_wait_event(first, event).ok());
  TM_CHECK(host_driver().stream_destroy(first).ok());
  TM_CHECK(host_driver().stream_destroy(second).ok());
  TM_CHECK(host_driver().event_destroy(event).ok());
}

TM_TEST("waiting on the default stream blocks the caller until the event is done") {
  const StreamId stream = new_stream();
  EventHandle event = new_event();
  Gate gate;
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
  TM_CHECK(host_driver().event_record(event, stream).ok());
  std::thread opener([&] { gate.let_go(); });
  TM_CHECK(host_driver().stream_wait_event(kDefaultStream, event).ok());
  TM_CHECK(ran.load());
  opener.join();
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(host_driver().event_destroy(event).ok());
}

TM_TEST("an event of a destroyed stream is done, also when the slot serves another stream that is busy") {
  std::vector<StreamId> others;
  const StreamId stream = new_stream();
  EventHandle event = new_event();
  std::atomic<bool> ran{false};
  TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
  TM_CHECK(host_driver().event_record(event, stream).ok());
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(is_done(event));
  // The same slot comes round again after all others.
  Gate gate;
  for (std::uint32_t i = 0; i < host::kMaxStreams; ++i) others.push_back(new_stream());
  for (const StreamId other : others) {
    if (static_cast<std::uint32_t>(other) != static_cast<std::uint32_t>(stream)) continue;
    TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, other).ok());
    TM_CHECK(is_done(event));
    TM_CHECK(host_driver().stream_wait_event(other, event).ok());
  }
  TM_CHECK(host_driver().event_synchronize(event).ok());
  gate.let_go();
  for (const StreamId other : others) TM_CHECK(host_driver().stream_destroy(other).ok());
  TM_CHECK(host_driver().event_destroy(event).ok());
}

TM_TEST("elapsed time needs two recorded and finished events") {
  HostDriver& driver = host_driver();
  const StreamId stream = new_stream();
  EventHandle start = new_event();
  EventHandle end = new_event();
  double seconds = -1;
  TM_CHECK(driver.event_elapsed(start, end, &seconds).code() == Code::invalid_argument);
  TM_CHECK(driver.event_record(start, stream).ok());
  Gate gate;
  TM_CHECK(driver.launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(driver.event_record(end, stream).ok());
  TM_CHECK(driver.event_elapsed(start, end, &seconds).code() == Code::invalid_argument);
  TM_CHECK(seconds == -1);
  gate.let_go();
  TM_CHECK(driver.event_synchronize(end).ok());
  TM_CHECK(driver.event_elapsed(start, end, &seconds).ok() && seconds > 0);
  double back = 0;
  TM_CHECK(driver.event_elapsed(end, start, &back).ok() && back == -seconds);
  // Recorded again behind unfinished work: the old stamp no longer counts.
  Gate second;
  TM_CHECK(driver.launch_host(&Gate::pass, &second, stream).ok());
  TM_CHECK(driver.event_record(end, stream).ok());
  TM_CHECK(driver.event_elapsed(start, end, &seconds).code() == Code::invalid_argument);
  second.let_go();
  TM_CHECK(driver.stream_destroy(stream).ok());
  TM_CHECK(driver.event_elapsed(start, end, &seconds).ok());
  TM_CHECK(driver.event_destroy(start).ok() && driver.event_destroy(end).ok());
}

TM_TEST("null, destroyed and made-up events are refused") {
  HostDriver& driver = host_driver();
  EventHandle gone = new_event();
  TM_CHECK(driver.event_destroy(gone).ok());
  EventHandle successor = new_event();
  for (EventHandle event : {EventHandle{nullptr}, gone, reinterpret_cast<EventHandle>(0x1234),
                            reinterpret_cast<EventHandle>(~std::uintptr_t{0}), static_cast<EventHandle>(&driver)}) {
    bool done = false;
    double seconds = 0;
    TM_CHECK(driver.event_query(event, &done).code() == Code::invalid_argument);
    TM_CHECK(driver.event_synchronize(event).code() == Code::invalid_argument);
    TM_CHECK(driver.event_record(event, kDefaultStream).code() == Code::invalid_argument);
    TM_CHECK(driver.stream_wait_event(kDefaultStream, event).code() == Code::invalid_argument);
    TM_CHECK(driver.event_elapsed(event, successor, &seconds).code() == Code::invalid_argument);
    TM_CHECK(driver.event_destroy(event).code() == Code::invalid_argument);
  }
  TM_CHECK(driver.event_destroy(successor).ok());
  TM_CHECK(driver.counters().events == 0);
}

TM_TEST("an event may be destroyed while its stream has yet to pass it") {
  const StreamId stream = new_stream();
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  for (int i = 0; i < 1000; ++i) {
    EventHandle event = new_event();
    TM_CHECK(host_driver().event_record(event, stream).ok());
    TM_CHECK(host_driver().event_destroy(event).ok());
  }
  gate.let_go();
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(host_driver().is_valid());
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
  const std::uint64_t threads = ProcessState::now().threads;
  std::atomic<int> ran{0};
  for (int i = 0; i < 8; ++i) {
    TM_CHECK(
        host_driver()
            .launch_host([](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &ran, new_stream())
            .ok());
  }
  TM_CHECK(host_driver().shutdown().ok());
  TM_CHECK(ran.load() == 8 && host_driver().counters().streams == 0 && ProcessState::now().threads == threads);
  const StreamId again = new_stream();
  TM_CHECK(host_driver()
               .launch_host([](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &ran, again)
               .ok());
  TM_CHECK(host_driver().stream_destroy(again).ok() && ran.load() == 9);
}

// --- Forks and exits ---------------------------------------------------------------------------------------------

int child_with_inherited_streams(StreamId stream, EventHandle pending, EventHandle inline_event) {
  HostDriver& driver = host_driver();
  bool done = false;
  if (driver.stream_is_valid(stream)) return 1;
  if (driver.stream_synchronize(stream).code() != Code::stream_misuse) return 2;
  if (driver.launch_host(&set_flag, &done, stream).code() != Code::stream_misuse) return 3;
  if (driver.event_query(pending, &done).code() != Code::stream_misuse) return 4;
  if (driver.event_synchronize(pending).code() != Code::stream_misuse) return 5;
  if (driver.stream_wait_event(kDefaultStream, pending).code() != Code::stream_misuse) return 6;
  if (!driver.event_query(inline_event, &done).ok() || !done) return 7;
  if (driver.stream_destroy(stream).code() != Code::stream_misuse) return 8;
  // Fresh streams work, and the old event can mark one of them.
  StreamId fresh = 0;
  std::atomic<bool> ran{false};
  if (!driver.stream_create(0, &fresh).ok() || fresh == stream) return 9;
  if (test::kChildrenStartThreads && !driver.launch_host(&set_flag, &ran, fresh).ok()) return 10;
  if (!driver.event_record(pending, fresh).ok() || !driver.event_synchronize(pending).ok()) return 11;
  if (ran.load() != test::kChildrenStartThreads || !driver.stream_destroy(fresh).ok()) return 12;
  if (!driver.event_destroy(pending).ok() || !driver.is_valid()) return 13;
  return driver.counters().streams == 0 ? 0 : 14;
}

TM_TEST("a child forked while streams run gets clear errors for them, and fresh streams work") {
  const StreamId busy = new_stream();
  const StreamId waiting = new_stream();
  EventHandle pending = new_event();
  EventHandle inline_event = new_event();
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, busy).ok());
  TM_CHECK(host_driver().event_record(pending, busy).ok());
  TM_CHECK(host_driver().event_record(inline_event, kDefaultStream).ok());
  TM_CHECK(host_driver().stream_wait_event(waiting, pending).ok());
  gate.wait_until_entered();
  for (const StreamId stream : {busy, waiting}) {
    const int status = test::in_child([&] { return child_with_inherited_streams(stream, pending, inline_event); });
    TM_CHECK(test::exited_with(status, 0));
  }
  // The parent notices nothing.
  TM_CHECK(!is_done(pending));
  gate.let_go();
  TM_CHECK(host_driver().stream_destroy(busy).ok() && host_driver().stream_destroy(waiting).ok());
  TM_CHECK(host_driver().event_destroy(pending).ok() && host_driver().event_destroy(inline_event).ok());
}

TM_TEST("forking in the middle of other threads' calls never hangs the child") {
  std::atomic<bool> stop{false};
  auto churn = [&] {
    EventHandle event = new_event();
    while (!stop.load()) {
      const StreamId stream = new_stream();
      std::atomic<bool> ran{false};
      TM_CHECK(host_driver().launch_host(&set_flag, &ran, stream).ok());
      TM_CHECK(host_driver().event_record(event, stream).ok());
      TM_CHECK(host_driver().event_synchronize(event).ok());
      TM_CHECK(host_driver().stream_destroy(stream).ok());
    }
    TM_CHECK(host_driver().event_destroy(event).ok());
  };
  std::thread one(churn);
  std::thread two(churn);
  for (int i = 0; i < 30; ++i) {
    const int status = test::in_child([] {
      EventHandle event = nullptr;
      StreamId stream = 0;
      std::atomic<bool> ran{false};
      bool worked = host_driver().stream_create(0, &stream).ok();
      const StreamId worker = test::kChildrenStartThreads ? stream : kDefaultStream;
      worked = worked && host_driver().event_create(0, &event).ok() &&
               host_driver().launch_host(&set_flag, &ran, worker).ok() &&
               host_driver().event_record(event, stream).ok() && host_driver().event_synchronize(event).ok() &&
               host_driver().stream_destroy(stream).ok();
      return worked && ran.load() ? 0 : 1;
    });
    TM_CHECK(test::exited_with(status, 0));
  }
  stop.store(true);
  one.join();
  two.join();
}

// The child comes back from its work, into a worker that is nobody's: it must end without running the parent's queue.
struct ForkingWork {
  int pipe_ends[2];
  int status = -1;
  static void run(void* work) {
    ForkingWork& self = *static_cast<ForkingWork*>(work);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) return;
    while (waitpid(child, &self.status, 0) < 0 && errno == EINTR) {
    }
  }
  static void write_byte(void* work) { TM_CHECK(write(static_cast<ForkingWork*>(work)->pipe_ends[1], "x", 1) == 1); }
};

TM_TEST("work on a stream may fork, and only the parent goes on with the stream") {
  if (!test::kChildrenStartThreads) return;  // a child whose only thread is a former worker is too much for it as well
  const StreamId stream = new_stream();
  ForkingWork work;
  TM_CHECK(pipe(work.pipe_ends) == 0);
  TM_CHECK(host_driver().launch_host(&ForkingWork::run, &work, stream).ok());
  TM_CHECK(host_driver().launch_host(&ForkingWork::write_byte, &work, stream).ok());
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(test::exited_with(work.status, 0));
  close(work.pipe_ends[1]);
  char bytes[4];
  TM_CHECK(read(work.pipe_ends[0], bytes, sizeof bytes) == 1);
  close(work.pipe_ends[0]);
}

TM_TEST("a process may exit while its streams are busy, in the parent and in a child with inherited streams") {
  const StreamId inherited = new_stream();
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, inherited).ok());
  gate.wait_until_entered();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    // A stream of its own that never ends, and the real exit with all its handlers.
    static Gate never;
    StreamId stream = 0;
    if (!test::kChildrenStartThreads) std::exit(9);
    if (!host_driver().stream_create(0, &stream).ok()) _exit(1);
    if (!host_driver().launch_host(&Gate::pass, &never, stream).ok()) _exit(2);
    never.wait_until_entered();
    std::exit(9);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  TM_CHECK(test::exited_with(status, 9));
  gate.let_go();
  TM_CHECK(host_driver().stream_destroy(inherited).ok());
}

// --- Faults ------------------------------------------------------------------------------------------------------

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
    if (driver.allocate_async(0, 4096, first, &block).ok() && !driver.deallocate_async(0, block, 4096, first).ok()) {
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

// Events of the host driver: points in streams, waited for, timed, and refused when they are not events.
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
using test::set_flag;

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

}  // namespace
}  // namespace tensormem

#include <atomic>
#include <thread>

#include "driver/host/host_driver.hpp"
#include "order/retired_list.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

// A stream whose first piece of work waits for `open`: everything behind it is pending until then.
struct GatedStream {
  GatedStream() {
    TM_CHECK(host_driver().stream_create(0, &id).ok());
    TM_CHECK(host_driver().launch_host(&wait_for_gate, this, id).ok());
  }
  ~GatedStream() {
    open();
    TM_CHECK(host_driver().stream_destroy(id).ok());
  }
  void open() {
    is_open.store(true);
    is_open.notify_all();
  }
  static void wait_for_gate(void* self) { static_cast<GatedStream*>(self)->is_open.wait(false); }

  std::atomic<bool> is_open{false};
  StreamId id = 0;
};

Use use_on(EventCache& events, StreamId stream) {
  Use use{stream, {}};
  TM_CHECK(events.record(stream, &use.event).ok());
  return use;
}

}  // namespace

TM_TEST("a read waits only for the last write of another stream") {
  EventCache events(host_driver(), 0);
  GatedStream a;
  GatedStream b;
  BlockUses uses;
  uses.finished(a.id, Access::write, use_on(events, a.id).event);
  uses.finished(b.id, Access::read, use_on(events, b.id).event);
  TM_CHECK(uses.conflicts(b.id, Access::read).size() == 1);
  TM_CHECK(uses.conflicts(b.id, Access::read)[0].stream == a.id);
  TM_CHECK(uses.conflicts(a.id, Access::read).empty());
}

TM_TEST("a write waits for every read of other streams too, and replaces them") {
  EventCache events(host_driver(), 0);
  GatedStream a;
  GatedStream b;
  GatedStream c;
  BlockUses uses;
  uses.finished(a.id, Access::write, use_on(events, a.id).event);
  uses.finished(b.id, Access::read, use_on(events, b.id).event);
  uses.finished(c.id, Access::read, use_on(events, c.id).event);
  TM_CHECK(uses.conflicts(c.id, Access::write).size() == 2);
  uses.finished(c.id, Access::read_write, use_on(events, c.id).event);
  TM_CHECK(uses.read_count() == 0);
  TM_CHECK(uses.conflicts(c.id, Access::write).empty());
  TM_CHECK(uses.conflicts(a.id, Access::write).size() == 1);
}

TM_TEST("a thousand reads on two streams are two entries") {
  EventCache events(host_driver(), 0);
  GatedStream a;
  GatedStream b;
  BlockUses uses;
  for (int i = 0; i < 1000; ++i) {
    const StreamId stream = i % 2 == 0 ? a.id : b.id;
    uses.finished(stream, Access::read, use_on(events, stream).event);
  }
  TM_CHECK(uses.read_count() == 2);
  TM_CHECK(events.idle_count() <= 2);
}

TM_TEST("an event is recorded again only when nobody holds it") {
  EventCache events(host_driver(), 0);
  EventHandle first = nullptr;
  {
    EventRef held;
    TM_CHECK(events.record(kDefaultStream, &held).ok());
    first = held.handle();
    const EventRef copy = held;
    EventRef second;
    TM_CHECK(events.record(kDefaultStream, &second).ok());
    TM_CHECK(second.handle() != first);
  }
  TM_CHECK(events.idle_count() == 2);
  EventRef again;
  TM_CHECK(events.record(kDefaultStream, &again).ok());
  TM_CHECK(events.idle_count() == 1);
}

TM_TEST("a retired item is taken when its stream has passed, and not before") {
  StreamOrder order(host_driver(), 0);
  GatedStream stream;
  RetiredList<int> retired;
  EventRef end;
  TM_CHECK(order.mark(stream.id, &end).ok());
  retired.push(7, Uses{{stream.id, std::move(end)}});
  std::vector<int> done;
  TM_CHECK(retired.take_done(order, &done).ok());
  TM_CHECK(done.empty() && retired.size() == 1);
  stream.open();
  TM_CHECK(host_driver().stream_synchronize(stream.id).ok());
  TM_CHECK(retired.take_done(order, &done).ok());
  TM_CHECK(done.size() == 1 && done[0] == 7 && retired.empty());
}

TM_TEST("waiting for uses orders the stream behind them") {
  StreamOrder order(host_driver(), 0);
  GatedStream writer;
  StreamId reader = 0;
  TM_CHECK(host_driver().stream_create(0, &reader).ok());
  std::atomic<int> step{0};
  struct Work {
    std::atomic<int>* step;
    int seen = -1;
  };
  Work write{&step};
  Work read{&step};
  TM_CHECK(host_driver()
               .launch_host(
                   [](void* work) {
                     auto* self = static_cast<Work*>(work);
                     self->seen = self->step->fetch_add(1);
                   },
                   &write, writer.id)
               .ok());
  BlockUses uses;
  EventRef written;
  TM_CHECK(order.mark(writer.id, &written).ok());
  uses.finished(writer.id, Access::write, std::move(written));
  TM_CHECK(order.wait_for(uses.conflicts(reader, Access::read), reader).ok());
  TM_CHECK(host_driver()
               .launch_host(
                   [](void* work) {
                     auto* self = static_cast<Work*>(work);
                     self->seen = self->step->fetch_add(1);
                   },
                   &read, reader)
               .ok());
  writer.open();
  TM_CHECK(host_driver().stream_synchronize(reader).ok());
  TM_CHECK(write.seen == 0 && read.seen == 1);
  TM_CHECK(host_driver().stream_destroy(reader).ok());
}

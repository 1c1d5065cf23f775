#include <atomic>

#include "driver/host/host_driver.hpp"
#include "order/stream_holds.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

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
  void pass() {
    open();
    TM_CHECK(host_driver().stream_synchronize(id).ok());
  }
  static void wait_for_gate(void* self) { static_cast<GatedStream*>(self)->is_open.wait(false); }

  std::atomic<bool> is_open{false};
  StreamId id = 0;
};

StreamHolder counted(std::atomic<int>* released, bool quickly = true) {
  return {released, [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, quickly};
}

}  // namespace

TM_TEST("a holder is released once its stream has passed, and not before") {
  StreamHolds holds;
  GatedStream stream;
  std::atomic<int> released{0};
  TM_CHECK(holds.hold(host_driver(), 0, stream.id, counted(&released)).ok());
  TM_CHECK(any_stream_holds());
  TM_CHECK(holds.reap() == 0 && released == 0);
  stream.pass();
  TM_CHECK(holds.reap() == 1 && released == 1);
  TM_CHECK(holds.reap() == 0 && released == 1 && !any_stream_holds());
}

TM_TEST("a stream that is held up keeps nothing of another's") {
  StreamHolds holds;
  GatedStream held;
  GatedStream free;
  std::atomic<int> kept{0};
  std::atomic<int> released{0};
  TM_CHECK(holds.hold(host_driver(), 0, held.id, counted(&kept)).ok());
  TM_CHECK(holds.hold(host_driver(), 0, free.id, counted(&released)).ok());
  free.pass();
  TM_CHECK(holds.reap() == 1 && released == 1 && kept == 0);
  held.pass();
  TM_CHECK(holds.reap() == 1 && kept == 1);
}

TM_TEST("reaping quickly leaves what may wait for a device, and takes what lies behind it") {
  StreamHolds holds;
  GatedStream stream;
  std::atomic<int> slow{0};
  std::atomic<int> quick{0};
  TM_CHECK(holds.hold(host_driver(), 0, stream.id, counted(&slow, false)).ok());
  TM_CHECK(holds.hold(host_driver(), 0, stream.id, counted(&quick)).ok());
  stream.pass();
  TM_CHECK(holds.reap_quickly(host_driver(), stream.id) == 1 && quick == 1 && slow == 0);
  TM_CHECK(holds.reap() == 1 && slow == 1);
}

TM_TEST("a hold on a destroyed stream is refused and stays with the caller") {
  StreamHolds holds;
  std::atomic<int> released{0};
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(holds.hold(host_driver(), 0, stream, counted(&released)).code() == Code::stream_misuse);
  TM_CHECK(holds.reap() == 0 && released == 0 && !any_stream_holds());
}

TM_TEST("finishing a driver waits for its streams") {
  StreamHolds holds;
  GatedStream stream;
  std::atomic<int> released{0};
  TM_CHECK(holds.hold(host_driver(), 0, stream.id, counted(&released)).ok());
  stream.open();
  holds.finish("host");
  TM_CHECK(released == 1 && !any_stream_holds());
}

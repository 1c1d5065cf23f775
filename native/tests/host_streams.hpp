// Owns: what the tests of streams, events and forks share: a gate that keeps a stream busy until it is let go, and
// makers that check themselves.
#pragma once

#include <atomic>

#include "driver/host/host_driver.hpp"
#include "tests/check.hpp"

namespace tensormem::test {

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

inline StreamId new_stream() {
  StreamId stream = kDefaultStream;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  return stream;
}

inline EventHandle new_event() {
  EventHandle event = nullptr;
  TM_CHECK(host_driver().event_create(0, &event).ok());
  return event;
}

inline bool is_done(EventHandle event) {
  bool done = false;
  TM_CHECK(host_driver().event_query(event, &done).ok());
  return done;
}

inline void set_flag(void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }

}  // namespace tensormem::test

// The one way to wait: how each kind of wait ends, and what the end of the process does to it.
#include <atomic>
#include <string_view>
#include <thread>

#include "base/ending.hpp"
#include "base/wait.hpp"
#include "tests/check.hpp"
#include "tests/host_process.hpp"
#include "tests/host_streams.hpp"

namespace tensormem {
namespace {

using test::Gate;
using test::in_child;
using test::new_event;
using test::new_stream;

std::atomic<int> g_heard{0};

Status hear_the_third() { return ++g_heard < 3 ? Status() : Status::fail(Code::interrupted, "a signal was heard"); }

TM_TEST("a wait ends with what is waited for, whatever kind it is") {
  for (const Wait& wait : {Wait::until_done(), Wait::of_worker(), Wait::of_caller(), Wait::of_caller(0)}) {
    int asked = 0;
    TM_CHECK(wait.until([](std::uint64_t) { return true; }).ok());
    TM_CHECK(wait.by_asking([&](bool* done) {
                   *done = true;
                   ++asked;
                   return Status();
                 })
                 .ok());
    TM_CHECK(asked == 1);
  }
}

TM_TEST("a caller's wait ends when the time is up, and looks once more before") {
  int looks = 0;
  Status ended = Wait::of_caller(1'000, "the train").until([&](std::uint64_t nanoseconds) {
    looks += nanoseconds == 0 ? 1 : 0;
    return false;
  });
  TM_CHECK(ended.code() == Code::timed_out && ended.failure().facts[0] == 1'000);
  TM_CHECK(std::string_view(ended.failure().what) == "the train" && looks == 1);
}

TM_TEST("what is asked may fail, and that ends the wait") {
  Status ended = Wait::until_done().by_asking([](bool*) { return Status::fail(Code::internal_error, "no"); });
  TM_CHECK(ended.code() == Code::internal_error);
}

TM_TEST("only a caller's wait hears signals, and not in the middle of a sleep") {
  install_signal_ear(&hear_the_third);
  Status heard = Wait::of_caller().until([](std::uint64_t) { return false; });
  TM_CHECK(heard.code() == Code::interrupted && g_heard == 3);
  int rounds = 0;
  TM_CHECK(Wait::until_done().until([&](std::uint64_t) { return ++rounds == 10; }).ok());
  TM_CHECK(Wait::of_worker().until([&](std::uint64_t) { return ++rounds == 20; }).ok());
  TM_CHECK(g_heard == 3);
  install_signal_ear(nullptr);
}

TM_TEST("a stream whose close was given up is open again, and closes when its work is done") {
  const StreamId stream = new_stream();
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(host_driver().stream_close(stream, Wait::of_caller(1'000'000)).code() == Code::timed_out);
  TM_CHECK(host_driver().stream_wait(stream, Wait::of_caller(0)).code() == Code::timed_out);
  Gate next;
  next.let_go();
  TM_CHECK(host_driver().launch_host(&Gate::pass, &next, stream).ok());
  gate.let_go();
  TM_CHECK(host_driver().stream_close(stream, Wait::of_caller()).ok());
  TM_CHECK(!host_driver().stream_is_valid(stream));
}

TM_TEST("an event that is destroyed wakes who waits for it") {
  const StreamId stream = new_stream();
  const EventHandle event = new_event();
  Gate gate;
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(host_driver().event_record(event, stream).ok());
  std::atomic<Code> ended{Code::ok};
  std::thread waiter([&] { ended = host_driver().event_wait(event, Wait::of_caller()).code(); });
  TM_CHECK(host_driver().event_destroy(event).ok());
  waiter.join();
  TM_CHECK(ended == Code::stream_misuse || ended == Code::invalid_argument);  // the latter: before it had begun
  gate.let_go();
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("at the end no work is taken, nothing waits longer than it may, and workers keep their order") {
  TM_CHECK(test::exited_with(in_child([] {
                               const StreamId first = new_stream();
                               const StreamId second = new_stream();
                               const EventHandle event = new_event();
                               static Gate gate;
                               static std::atomic<bool> ran{false};
                               TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, first).ok());
                               TM_CHECK(host_driver().event_record(event, first).ok());
                               TM_CHECK(host_driver().stream_wait_event(second, event).ok());
                               TM_CHECK(host_driver().launch_host(&test::set_flag, &ran, second).ok());
                               begin_ending(1'000'000);
                               begin_ending(1'000'000'000'000);  // the first counts
                               TM_CHECK(host_driver().launch_host(&test::set_flag, &ran, second).code() ==
                                        Code::stream_misuse);
                               TM_CHECK(host_driver().stream_synchronize(first).code() == Code::timed_out);
                               TM_CHECK(host_driver().stream_destroy(second).code() == Code::timed_out);
                               TM_CHECK(host_driver().event_synchronize(event).code() == Code::timed_out);
                               TM_CHECK(!ran);
                               return 3;
                             }),
                             3));
}

}  // namespace
}  // namespace tensormem

// Forks and exits: a child gets clear errors for what belongs to its parent, harms none of it, and can start afresh.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/check.hpp"
#include "tests/host_process.hpp"
#include "tests/host_ranges.hpp"
#include "tests/host_streams.hpp"

namespace tensormem {
namespace {

using test::all_are;
using test::bytes_at;
using test::Gate;
using test::is_clean;
using test::is_done;
using test::kPage;
using test::kSmall;
using test::map_writable;
using test::new_event;
using test::new_physical;
using test::new_range;
using test::new_stream;
using test::set_flag;

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
  if (!test::can_fork_amid_threads()) return;
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
      const bool worked = host_driver().stream_create(0, &stream).ok() && host_driver().event_create(0, &event).ok() &&
                          host_driver().launch_host(&set_flag, &ran, stream).ok() &&
                          host_driver().event_record(event, stream).ok() &&
                          host_driver().event_synchronize(event).ok() && host_driver().stream_destroy(stream).ok();
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
  if (!test::can_fork_amid_threads()) return;
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

int use_inherited_memory(std::uint64_t range, PhysicalHandle ordinary, PhysicalHandle exportable) {
  HostDriver& driver = host_driver();
  std::int32_t fd = -1;
  if (driver.map(range + 2 * kPage, kPage, ordinary, 0).code() != Code::invalid_argument) return 1;
  if (driver.set_access(range, kPage, 0, AccessFlags::read_write).code() != Code::invalid_argument) return 2;
  if (driver.physical_export(exportable, &fd).code() != Code::invalid_argument) return 3;
  // Fresh memory works, and does not come from the parent's file.
  const std::uint64_t mine = new_range(kPage);
  PhysicalOptions options;
  options.placement = range;
  const PhysicalHandle fresh = new_physical(kPage, options);
  map_writable(mine, kPage, fresh);
  if (!all_are(mine, kPage, 0)) return 4;
  std::memset(reinterpret_cast<void*>(mine), 9, kPage);
  // Tearing down what was inherited works and harms nobody.
  if (!driver.unmap(range, 2 * kPage).ok()) return 5;
  if (!driver.physical_destroy(ordinary).ok() || !driver.physical_destroy(exportable).ok()) return 6;
  if (!driver.release(range, 4 * kPage).ok()) return 7;
  if (!driver.unmap(mine, kPage).ok() || !driver.physical_destroy(fresh).ok()) return 8;
  if (!driver.release(mine, kPage).ok() || !driver.is_valid()) return 9;
  return test::holds_nothing() ? 0 : 10;
}

TM_TEST("a forked child can neither see nor harm the parent's pages, and can make its own") {
  const std::uint64_t range = new_range(4 * kPage);
  PhysicalOptions options;
  options.placement = range;
  const PhysicalHandle ordinary = new_physical(kPage, options);
  options.exportable = true;
  const PhysicalHandle exportable = new_physical(kPage, options);
  map_writable(range, kPage, ordinary);
  map_writable(range + kPage, kPage, exportable);
  std::memset(reinterpret_cast<void*>(range), 4, 2 * kPage);
  TM_CHECK(test::died_of(test::in_child([&] { return static_cast<int>(bytes_at(range)[0]); }), SIGSEGV));
  TM_CHECK(test::died_of(test::in_child([&] { return static_cast<int>(bytes_at(range + kPage)[0]); }), SIGSEGV));
  TM_CHECK(test::exited_with(test::in_child([&] { return use_inherited_memory(range, ordinary, exportable); }), 0));
  TM_CHECK(all_are(range, 2 * kPage, 4));
  TM_CHECK(host_driver().unmap(range, 2 * kPage).ok() && host_driver().release(range, 4 * kPage).ok());
  TM_CHECK(host_driver().physical_destroy(ordinary).ok() && host_driver().physical_destroy(exportable).ok());
  TM_CHECK(is_clean());
}

}  // namespace
}  // namespace tensormem

#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/ring_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

TM_TEST("a reader killed while it holds a frame and wants others gives all of it up") {
  const auto ring = new_ring(2, WhenFull::wait);
  const auto writer = writer_of(ring);
  TM_CHECK(write(*writer) == 1);
  const pid_t child = in_a_child([&] {
    const auto mine = reader_of(ring, ReadMode::every).release();
    HeldFrame frame;
    if (mine->take(0, &frame) != ReadOutcome::frame) _exit(1);
  });
  TM_CHECK(write(*writer) == 2 && write(*writer) == 0 && write(*writer) == 0);
  TM_CHECK(ring->readers().size() == 1 && ring->readers()[0].pid == static_cast<std::uint32_t>(child));
  kill_child(child);
  TM_CHECK(write(*writer) == 3 && write(*writer) == 4 && ring->readers().empty());
}

TM_TEST("a waiting writer goes on when the reader it waits for dies") {
  const auto ring = new_ring(1, WhenFull::wait);
  const auto writer = writer_of(ring);
  const pid_t child = in_a_child([&] { reader_of(ring, ReadMode::every).release(); });
  TM_CHECK(write(*writer) == 1 && write(*writer) == 0);
  std::thread killer([&] { kill_child(child); });
  while (writer->begin(kGlance) == RingWriter::kNoSlot) {
  }
  killer.join();
  TM_CHECK(writer->publish(0) == 2);
}

TM_TEST("a writer killed in the middle of a frame is noticed, and the next one writes on") {
  const auto ring = new_ring(2, WhenFull::wait);
  const auto reader = reader_of(ring, ReadMode::every);
  const pid_t child = in_a_child([&] {
    const auto mine = writer_of(ring).release();
    if (write(*mine) != 1 || mine->begin(0) == RingWriter::kNoSlot) _exit(1);
  });
  HeldFrame frame;
  TM_CHECK(writer_of(ring) == nullptr && read(*reader) == 1);
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::nothing_yet);
  kill_child(child);
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::writer_gone);
  const auto writer = writer_of(ring);
  TM_CHECK(write(*writer) == 2 && write(*writer) == 3 && read(*reader) == 2 && read(*reader) == 3);
}

TM_TEST("a frame that was complete and not announced when its writer died is announced by the next") {
  const auto ring = new_ring(3, WhenFull::overwrite);
  auto writer = writer_of(ring);
  TM_CHECK(write(*writer) == 1 && write(*writer) == 2);
  writer.reset();
  ring->header().latest.store(1);  // as if it had been killed just before
  const auto reader = reader_of(ring, ReadMode::every);
  writer = writer_of(ring);
  TM_CHECK(read(*reader) == 1 && read(*reader) == 2 && write(*writer) == 3 && read(*reader) == 3);
}

TM_TEST("a forked child has no part in the ring, lets go of nothing, and can join") {
  const auto ring = new_ring(2, WhenFull::wait);
  auto* const writer = writer_of(ring).release();
  auto* const reader = reader_of(ring, ReadMode::every).release();
  TM_CHECK(write(*writer) == 1);
  HeldFrame frame;
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::frame);
  const pid_t child = in_a_child([&] {
    HeldFrame other;
    if (!writer->is_forked() || writer->begin(0) != RingWriter::kNoSlot) _exit(1);
    if (reader->take(0, &other) != ReadOutcome::nothing_yet) _exit(2);
    reader->give_back(frame.slot);
    delete reader;
    delete writer;
    if (writer_of(ring) != nullptr) _exit(3);
    auto* const mine = reader_of(ring, ReadMode::every).release();
    if (mine->take(0, &other) != ReadOutcome::frame || other.number != 1) _exit(4);
  });
  TM_CHECK(ring->readers().size() == 2 && ring->slot(frame.slot).word.load() == 3);
  delete writer;  // the child keeps no lock of ours
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::writer_gone);
  kill_child(child);
  delete reader;
}

TM_TEST("writers and readers killed at any moment leave a ring that works") {
  for (int round = 0; round < 60; ++round) {
    const auto ring = new_ring(2 + static_cast<std::uint32_t>(round % 3), static_cast<WhenFull>(round % 3));
    std::vector<pid_t> children;
    for (int number = 0; number < 3; ++number) {
      std::fflush(nullptr);
      const pid_t pid = fork();
      if (pid != 0) {
        children.push_back(pid);
        continue;
      }
      while (number == 0) {
        const auto mine = writer_of(ring);
        for (int i = 0; mine != nullptr && i < 50; ++i)
          if (mine->begin(1000) != RingWriter::kNoSlot) (void)mine->publish(1);
      }
      while (true) {
        const auto mine = reader_of(ring, number == 1 ? ReadMode::every : ReadMode::latest);
        HeldFrame frame;
        for (int i = 0; i < 50; ++i)
          if (mine->take(1000, &frame) == ReadOutcome::frame) mine->give_back(frame.slot);
      }
    }
    while (ring->header().latest.load() < static_cast<std::uint64_t>(5 + round)) sched_yield();
    for (const pid_t pid : children) kill(pid, SIGKILL);
    for (const pid_t pid : children) wait_for(pid);
    const auto writer = writer_of(ring);
    const auto reader = reader_of(ring, ReadMode::every);
    TM_CHECK(writer != nullptr && reader != nullptr && ring->readers().size() == 1);
    const std::uint64_t newest = read(*reader);
    std::uint64_t last = newest;
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t written = write(*writer);
      TM_CHECK(written > last && read(*reader) == written);
      last = written;
    }
  }
}

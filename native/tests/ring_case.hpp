// Owns: what the tests of frame rings share: rings, members, single frames, and children that are killed.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>

#include "share/ring_reader.hpp"
#include "share/ring_writer.hpp"
#include "tests/check.hpp"

namespace tensormem::test {

inline constexpr std::uint64_t kGlance = 20'000'000;
using Writer = std::unique_ptr<RingWriter>;
using Reader = std::unique_ptr<RingReader>;

inline FrameFormat format(std::uint32_t frames, WhenFull when_full) {
  FrameFormat made;
  made.frame_count = frames;
  made.when_full = when_full;
  made.dtype = {1, 8, 1};
  made.ndim = 2;
  made.shape = {4, 1000};
  return made;
}

inline RingFilePtr new_ring(std::uint32_t frames, WhenFull when_full) {
  RingFilePtr file;
  TM_CHECK(RingFile::create(format(frames, when_full), &file).ok());
  return file;
}

inline RingFilePtr attach(const RingFilePtr& ring) {
  RingFilePtr file;
  TM_CHECK(RingFile::attach(ring->fd(), &file).ok());
  return file;
}

inline Writer writer_of(const RingFilePtr& ring) {
  Writer made;
  TM_CHECK(RingWriter::attach(ring, &made).ok());
  return made;
}

inline Reader reader_of(const RingFilePtr& ring, ReadMode mode) {
  Reader made;
  TM_CHECK(RingReader::attach(ring, mode, &made).ok());
  return made;
}

// Writes one frame; its number, or 0 when there was no room.
inline std::uint64_t write(RingWriter& writer, std::uint64_t timestamp = 7) {
  return writer.begin(0) == RingWriter::kNoSlot ? 0 : writer.publish(timestamp);
}

// The number of the next frame, given back at once; 0 when there is none.
inline std::uint64_t read(RingReader& reader) {
  HeldFrame frame;
  if (reader.take(0, &frame) != ReadOutcome::frame) return 0;
  reader.give_back(frame.slot);
  return frame.number;
}

inline void wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

// Runs `body` in a child, which then waits to be killed; returns when it has.
template <typename Body>
pid_t in_a_child(Body&& body) {
  int ends[2];
  TM_CHECK(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    if (::write(ends[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ends[1]);
  char said = 0;
  TM_CHECK(::read(ends[0], &said, 1) == 1);
  close(ends[0]);
  return pid;
}

inline void kill_child(pid_t pid) {
  kill(pid, SIGKILL);
  wait_for(pid);
}

}  // namespace tensormem::test

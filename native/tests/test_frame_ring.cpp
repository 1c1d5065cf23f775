#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "driver/host/fault_plan.hpp"
#include "driver/host/os.hpp"
#include "tests/ring_case.hpp"
#include "tests/ring_model.hpp"

using namespace tensormem;
using namespace tensormem::test;

TM_TEST("the latest frame is the newest one, once, and skipped ones are counted") {
  const auto ring = new_ring(3, WhenFull::overwrite);
  const auto writer = writer_of(ring);
  const auto reader = reader_of(attach(ring), ReadMode::latest);
  HeldFrame frame;
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::nothing_yet);
  TM_CHECK(write(*writer, 11) == 1 && reader->take(0, &frame) == ReadOutcome::frame);
  TM_CHECK(frame.number == 1 && frame.timestamp == 11 && frame.dropped == 0);
  reader->give_back(frame.slot);
  TM_CHECK(read(*reader) == 0);
  for (std::uint64_t i = 2; i < 10; ++i) TM_CHECK(write(*writer) == i);
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::frame && frame.number == 9 && frame.dropped == 7);
  for (std::uint64_t i = 10; i < 20; ++i) TM_CHECK(write(*writer) == i);  // the held slot is left alone
  TM_CHECK(ring->slot(frame.slot).number.load() == 9);
  reader->give_back(frame.slot);
  TM_CHECK(read(*reader) == 19);
}

TM_TEST("a frame that was not begun is neither published nor abandoned, and nothing changes") {
  const auto ring = new_ring(2, WhenFull::drop);
  const auto writer = writer_of(ring);
  TM_CHECK(writer->publish(1) == RingWriter::kNotBegun);
  TM_CHECK(write(*writer) == 1 && writer->publish(1) == RingWriter::kNotBegun);
  TM_CHECK(writer->begin(0) != RingWriter::kNoSlot);
  writer->abandon();
  writer->abandon();
  TM_CHECK(writer->publish(1) == RingWriter::kNotBegun && ring->header().latest.load() == 1 && write(*writer) == 2);
}

TM_TEST("a writer that waits keeps every frame for those who want each") {
  const auto ring = new_ring(2, WhenFull::wait);
  const auto writer = writer_of(ring);
  const auto slow = reader_of(ring, ReadMode::every);
  const auto quick = reader_of(ring, ReadMode::every);
  TM_CHECK(write(*writer) == 1 && write(*writer) == 2 && write(*writer) == 0);
  TM_CHECK(read(*quick) == 1 && read(*quick) == 2 && write(*writer) == 0);
  TM_CHECK(read(*slow) == 1 && write(*writer) == 3 && write(*writer) == 0);
  TM_CHECK(read(*slow) == 2 && read(*slow) == 3 && read(*quick) == 3 && read(*slow) == 0);
  TM_CHECK(ring->header().dropped.load() == 0);
}

TM_TEST("a writer that drops keeps what is unread and never waits") {
  const auto ring = new_ring(2, WhenFull::drop);
  const auto writer = writer_of(ring);
  const auto reader = reader_of(ring, ReadMode::every);
  TM_CHECK(write(*writer) == 1 && write(*writer) == 2);
  TM_CHECK(write(*writer) == 0 && write(*writer) == 0 && ring->header().dropped.load() == 2);
  TM_CHECK(read(*reader) == 1 && write(*writer) == 3 && read(*reader) == 2 && read(*reader) == 3);
}

TM_TEST("a writer that overwrites takes the oldest, and drops only when all are held") {
  const auto ring = new_ring(2, WhenFull::overwrite);
  const auto writer = writer_of(ring);
  const auto reader = reader_of(ring, ReadMode::every);
  for (std::uint64_t i = 1; i <= 5; ++i) TM_CHECK(write(*writer) == i);
  HeldFrame four;
  HeldFrame five;
  TM_CHECK(reader->take(0, &four) == ReadOutcome::frame && four.number == 4);
  TM_CHECK(reader->take(0, &five) == ReadOutcome::frame && five.number == 5);
  TM_CHECK(write(*writer) == 0 && ring->header().dropped.load() == 1);
  reader->give_back(four.slot);
  TM_CHECK(write(*writer) == 6 && read(*reader) == 6);
  reader->give_back(five.slot);
}

TM_TEST("an abandoned frame is never seen, and its slot serves the next one") {
  for (const WhenFull when_full : {WhenFull::wait, WhenFull::drop, WhenFull::overwrite}) {
    const auto ring = new_ring(1, when_full);
    const auto writer = writer_of(ring);
    const auto reader = reader_of(ring, ReadMode::latest);
    const std::uint32_t slot = writer->begin(0);
    TM_CHECK(writer->begin(0) == RingWriter::kBusy);
    writer->abandon();
    TM_CHECK(read(*reader) == 0 && writer->begin(0) == slot && writer->publish(1) == 1 && read(*reader) == 1);
  }
}

TM_TEST("there is one writer, and the next one goes on counting") {
  const auto ring = new_ring(2, WhenFull::overwrite);
  auto writer = writer_of(ring);
  TM_CHECK(write(*writer) == 1 && writer_of(attach(ring)) == nullptr);
  const auto reader = reader_of(ring, ReadMode::every);
  writer.reset();
  HeldFrame frame;
  TM_CHECK(read(*reader) == 1 && reader->take(0, &frame) == ReadOutcome::writer_gone);
  writer = writer_of(attach(ring));
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::nothing_yet && write(*writer) == 2);
  writer->end();
  writer.reset();
  TM_CHECK(read(*reader) == 2 && reader->take(0, &frame) == ReadOutcome::ended);
  writer = writer_of(ring);
  TM_CHECK(reader->take(0, &frame) == ReadOutcome::nothing_yet);
}

TM_TEST("no more than 62 readers find a place, and one that leaves makes room") {
  const auto ring = new_ring(2, WhenFull::wait);
  std::vector<Reader> all;
  for (std::uint32_t i = 0; i < kMaxReaders; ++i) all.push_back(reader_of(ring, ReadMode::every));
  TM_CHECK(all.back() != nullptr && reader_of(ring, ReadMode::latest) == nullptr);
  TM_CHECK(ring->readers().size() == kMaxReaders && ring->readers()[0].every);
  all.erase(all.begin() + 30);
  TM_CHECK(reader_of(ring, ReadMode::latest) != nullptr);
  all.clear();
  TM_CHECK(ring->readers().empty());
}

TM_TEST("formats that no memory can hold are refused") {
  RingFilePtr file;
  const auto why_not = [&](auto&& change) {
    FrameFormat wrong = format(2, WhenFull::wait);
    change(wrong);
    return RingFile::create(wrong, &file).code();
  };
  TM_CHECK(why_not([](FrameFormat& f) { f.frame_count = 0; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.frame_count = 1025; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.ndim = 9; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.ndim = -1; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.dtype.bits = 9; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.dtype.lanes = 0; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.shape[0] = -1; }) == Code::invalid_size);
  TM_CHECK(why_not([](FrameFormat& f) { f.shape[0] = 0; }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat& f) { f.shape[0] = INT64_MAX; }) == Code::invalid_size);
  TM_CHECK(why_not([](FrameFormat& f) { f.shape[0] = 1LL << 40; }) == Code::invalid_size);
  TM_CHECK(why_not([](FrameFormat& f) { f.when_full = static_cast<WhenFull>(3); }) == Code::invalid_argument);
  TM_CHECK(why_not([](FrameFormat&) {}) == Code::ok && file->format().frame_bytes == 4000);
  TM_CHECK(file->format().slot_bytes == host::os::page_size() && file->format().slot_count == 2);
}

TM_TEST("files that are no frame ring are refused, and headers that lie") {
  const auto ring = new_ring(2, WhenFull::overwrite);
  struct stat real{};
  TM_CHECK(fstat(ring->fd(), &real) == 0 && (real.st_mode & 0777) == 0600);
  const auto why_not = [](int fd) {
    RingFilePtr file;
    return RingFile::attach(fd, &file).code();
  };
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  TM_CHECK(why_not(-1) == Code::invalid_argument && why_not(null) == Code::invalid_argument);
  close(null);
  const auto forged = [&](off_t size, int seals, std::size_t at, std::uint8_t value) {
    const int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char head[256] = {};
    TM_CHECK(pread(ring->fd(), head, sizeof head, 0) == sizeof head);
    if (at != 0) head[at] = static_cast<char>(value);
    TM_CHECK(pwrite(fd, head, sizeof head, 0) == sizeof head);
    TM_CHECK(ftruncate(fd, size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    const Code code = why_not(fd);
    close(fd);
    return code;
  };
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  TM_CHECK(forged(real.st_size, kSealed, 0, 0) == Code::ok);
  TM_CHECK(forged(real.st_size, F_SEAL_SHRINK, 0, 0) != Code::ok);
  TM_CHECK(forged(real.st_size, F_SEAL_GROW, 0, 0) != Code::ok);
  TM_CHECK(forged(real.st_size - 1, kSealed, 0, 0) != Code::ok);
  TM_CHECK(forged(real.st_size + 4096, kSealed, 0, 0) != Code::ok);
  TM_CHECK(forged(256, kSealed, 0, 0) != Code::ok);
  TM_CHECK(forged(0, kSealed, 0, 0) != Code::ok);
  for (const std::size_t at : {1, 8, 13, 14, 16, 20, 24, 25, 28, 31, 32, 39, 96})
    TM_CHECK(forged(real.st_size, kSealed, at, 0xFE) != Code::ok);
}

TM_TEST("the ring does what a simple model does") {
  std::uint64_t seed = 42;
  const auto random = [&] {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint8_t>(seed >> 56);
  };
  for (const WhenFull when_full : {WhenFull::wait, WhenFull::drop, WhenFull::overwrite}) {
    for (std::uint32_t frames = 1; frames < 6; ++frames) {
      RingModel model(frames, when_full);
      TM_CHECK(model.opened());
      bool same = true;
      for (int i = 0; i < 5000 && same; ++i) {
        const std::uint8_t what = random();
        same = model.step(what, random());
      }
      TM_CHECK(same);
    }
  }
}

// The frames are plain memory here: whoever reads one that is being written is a data race, which TSan reports.
TM_TEST("threads read frames while others are written, and none is ever torn") {
  constexpr std::uint64_t kFrames = 3000;
  for (const WhenFull when_full : {WhenFull::wait, WhenFull::drop, WhenFull::overwrite}) {
    const auto ring = new_ring(3, when_full);
    std::vector<std::array<std::uint64_t, 32>> frames(ring->format().slot_count);
    auto writer = writer_of(ring);
    std::atomic<bool> torn{false};
    std::atomic<std::uint64_t> missed{0};
    std::vector<std::thread> readers;
    for (const ReadMode mode : {ReadMode::every, ReadMode::every, ReadMode::latest}) {
      readers.emplace_back([&, mine = std::shared_ptr<RingReader>(reader_of(ring, mode))] {
        std::uint64_t last = 0;
        HeldFrame frame;
        for (ReadOutcome got = ReadOutcome::frame; got != ReadOutcome::ended;) {
          got = mine->take(kGlance, &frame);
          if (got != ReadOutcome::frame) continue;
          for (const std::uint64_t word : frames[frame.slot]) torn = torn || word != frame.number;
          torn = torn || frame.number <= last;
          if (mine->mode() == ReadMode::every) missed += frame.number - last - 1;
          last = frame.number;
          mine->give_back(frame.slot);
        }
        torn = torn || last == 0;
      });
    }
    for (std::uint64_t number = 1; number <= kFrames;) {
      const std::uint32_t slot = writer->begin(kGlance);
      if (slot == RingWriter::kNoSlot) continue;
      frames[slot].fill(number);
      number += writer->publish(0) != 0 ? 1 : 0;
    }
    writer->end();
    writer.reset();
    for (std::thread& each : readers) each.join();
    TM_CHECK(!torn && (when_full == WhenFull::overwrite || missed == 0) && ring->readers().empty());
  }
}

TM_TEST("what a member scribbles over the file loses frames at most, and a new writer puts it right") {
  const auto ring = new_ring(3, WhenFull::drop);
  auto writer = writer_of(ring);
  auto every = reader_of(ring, ReadMode::every);
  auto latest = reader_of(ring, ReadMode::latest);
  std::uint64_t seed = 1;
  for (int round = 0; round < 3000; ++round) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t value = round % 3 == 0 ? ~0ULL : seed;
    auto* const changing = reinterpret_cast<std::atomic<std::uint64_t>*>(&ring->header().latest);
    auto* const rest = reinterpret_cast<std::atomic<std::uint64_t>*>(&ring->slot(0));
    const std::uint64_t words = (4 * sizeof(RingSlot) + kMaxReaders * sizeof(RingMember)) / 8;
    (seed % 5 == 0 ? changing[(seed >> 40) % 24] : rest[(seed >> 40) % words]).store(value);
    if (writer->begin(0) != RingWriter::kNoSlot) writer->publish(value);
    for (RingReader* each : {every.get(), latest.get()}) {
      HeldFrame frame;
      if (each->take(0, &frame) != ReadOutcome::frame) continue;
      TM_CHECK(frame.slot < ring->format().slot_count);
      each->give_back(frame.slot);
    }
  }
  TM_CHECK(ring->format().frame_bytes == 4000);
  writer.reset();
  every.reset();  // what the living hold is theirs
  latest.reset();
  std::memset(static_cast<void*>(&ring->slot(0)), 0xFF, 4 * sizeof(RingSlot));
  writer = writer_of(ring);
  const auto fresh = reader_of(ring, ReadMode::latest);
  for (int i = 0; i < 10; ++i) (void)write(*writer);
  TM_CHECK(read(*fresh) != 0);
}

TM_TEST("when a system call fails while a ring is made or joined, nothing is left behind") {
  namespace plan = host::fault_plan;
  const auto scenario = [] {
    RingFilePtr ring;
    RingFilePtr again;
    Writer writer;
    Reader reader;
    Status made = RingFile::create(format(2, WhenFull::wait), &ring);
    if (made.ok()) made = RingFile::attach(ring->fd(), &again);
    if (made.ok()) made = RingWriter::attach(ring, &writer);
    if (made.ok()) made = RingReader::attach(again, ReadMode::every, &reader);
    if (!made.ok() || writer == nullptr || reader == nullptr) return false;
    return write(*writer) == 1 && read(*reader) == 1;
  };
  TM_CHECK(scenario());
  plan::arm(host::SystemCall::any, 0, 0);
  TM_CHECK(scenario());
  const std::uint64_t calls = plan::calls_made();
  plan::disarm();
  const int lowest_free = dup(0);
  close(lowest_free);
  for (std::uint64_t nth = 1; nth <= calls; ++nth) {
    plan::arm(host::SystemCall::any, nth, EMFILE);
    (void)scenario();
    plan::disarm();
    TM_CHECK(scenario());
    const int still_free = dup(0);
    TM_CHECK(still_free == lowest_free);
    close(still_free);
  }
  TM_CHECK(calls > 8);
}

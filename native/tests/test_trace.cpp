// Rings, recordings and files of traces.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/interned.hpp"
#include "resource/pool_memory_resource.hpp"
#include "resource/statistics_resource_adaptor.hpp"
#include "tests/host_process.hpp"
#include "tests/resource_case.hpp"
#include "trace/crc32.hpp"
#include "trace/recorder.hpp"
#include "trace/reports.hpp"
#include "trace/ring.hpp"
#include "trace/writer.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

TraceRecorder& recorder() { return TraceRecorder::instance(); }

// A file that is gone at the end of the test.
struct TemporaryFile {
  TemporaryFile() {
    const int fd = mkstemp(path);
    TM_CHECK(fd >= 0);
    close(fd);
  }
  ~TemporaryFile() { unlink(path); }
  char path[32] = "/tmp/tensormem-trace-XXXXXX";
};

struct ReadBack {
  std::vector<TraceEvent> events;
  std::map<std::uint16_t, int> chunks;
  bool closed = false;
};

// Follows the chunks from front to back, as a reader without the index does; stops where they stop making sense.
ReadBack read_back(const char* path) {
  ReadBack found;
  std::FILE* file = std::fopen(path, "rb");
  TM_CHECK(file != nullptr);
  TraceFileHeader header;
  TM_CHECK(std::fread(&header, sizeof header, 1, file) == 1);
  TM_CHECK(std::memcmp(header.magic, kTraceMagic, 8) == 0 && header.crc == crc32(&header, 60));
  ChunkHeader chunk;
  while (std::fread(&chunk, sizeof chunk, 1, file) == 1) {
    TM_CHECK(chunk.magic == kChunkMagic && chunk.crc == crc32(&chunk, 60));
    std::vector<unsigned char> payload(chunk.nbytes);
    if (chunk.nbytes != 0 && std::fread(payload.data(), chunk.nbytes, 1, file) != 1) break;
    TM_CHECK(chunk.payload_crc == crc32(payload.data(), payload.size()));
    ++found.chunks[static_cast<std::uint16_t>(chunk.type)];
    found.closed = chunk.type == ChunkType::end;
    if (chunk.type != ChunkType::events) continue;
    const std::size_t before = found.events.size();
    found.events.resize(before + chunk.count);
    std::memcpy(&found.events[before], payload.data(), payload.size());
    for (std::size_t i = before; i < found.events.size(); ++i)
      TM_CHECK(chunk.first_time <= found.events[i].time && found.events[i].time <= chunk.last_time);
  }
  std::fclose(file);
  return found;
}

std::size_t count_of(const ReadBack& found, TraceKind kind, std::uint32_t resource) {
  return static_cast<std::size_t>(std::ranges::count_if(
      found.events, [&](const TraceEvent& event) { return event.kind == kind && event.resource == resource; }));
}

}  // namespace

TM_TEST("the checksum is that of zlib") {
  TM_CHECK(crc32("123456789", 9) == 0xCBF43926U);
  TM_CHECK(crc32("6789", 4, crc32("12345", 5)) == 0xCBF43926U);
}

TM_TEST("a ring gives back what went in, in order, also around its end") {
  TraceRing ring(1, 8);
  std::vector<TraceEvent> out(8);
  std::uint64_t next = 0;
  std::uint64_t seen = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 1 + round % 8; ++i) {
      TraceEvent event;
      event.nbytes = next++;
      TM_CHECK(ring.push(event));
    }
    const std::uint64_t count = ring.take(ring.head(), out.data(), out.size());
    for (std::uint64_t i = 0; i < count; ++i) TM_CHECK(out[i].nbytes == seen++);
    TM_CHECK(ring.is_valid());
  }
  TM_CHECK(seen == next);
}

TM_TEST("a full ring refuses and keeps what it has") {
  TraceRing ring(1, 4);
  TraceEvent event;
  for (int i = 0; i < 4; ++i) TM_CHECK(ring.push(event));
  TM_CHECK(!ring.push(event));
  TraceEvent out[4];
  TM_CHECK(ring.take(ring.head(), out, 4) == 4 && ring.push(event));
}

TM_TEST("one thread pushes while another takes: nothing is lost, torn or out of order") {
  TraceRing ring(1, 64);
  constexpr std::uint64_t kCount = 200000;
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      TraceEvent event;
      event.nbytes = event.address = event.other = i;
      if (ring.push(event))
        ++i;
      else
        std::this_thread::yield();
    }
  });
  std::uint64_t seen = 0;
  TraceEvent out[64];
  bool whole = true;
  while (seen < kCount) {
    const std::uint64_t count = ring.take(ring.head(), out, 64);
    for (std::uint64_t i = 0; i < count; ++i, ++seen)
      whole = whole && out[i].nbytes == seen && out[i].address == seen && out[i].other == seen;
    if (count == 0) std::this_thread::yield();
  }
  producer.join();
  TM_CHECK(whole);
}

TM_TEST("every resource of a stack reports what passes it, the inner ones as asked for by a resource") {
  TemporaryFile file;
  auto leaf = make_leaf();
  std::shared_ptr<PoolMemoryResource> pool;
  TM_CHECK(PoolMemoryResource::create(leaf, {}, &pool).ok());
  auto counting = std::make_shared<StatisticsResourceAdaptor>(pool);
  const TagId tag = intern_tag("test.trace");
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  const Block block = allocate(*counting, 1000, kDefaultStream, tag);
  TM_CHECK(deallocate(*counting, block).ok());
  TM_CHECK(try_allocate(*counting, 0) == Code::invalid_size);
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  TM_CHECK(report.dropped == 0);

  const ReadBack found = read_back(file.path);
  TM_CHECK(found.closed && report.events == found.events.size());
  for (const Resource* resource : std::initializer_list<Resource*>{counting.get(), pool.get()}) {
    TM_CHECK(count_of(found, TraceKind::allocate, resource->id()) == 1);
    TM_CHECK(count_of(found, TraceKind::deallocate, resource->id()) == 1);
    TM_CHECK(count_of(found, TraceKind::fail, resource->id()) == 1);
  }
  TM_CHECK(count_of(found, TraceKind::allocate, leaf->id()) == 1);  // the pool's chunk
  for (const TraceEvent& event : found.events) {
    if (event.resource == counting->id())
      TM_CHECK(event.depth == 0 && (event.kind == TraceKind::fail || event.tag == tag));
    if (event.resource == pool->id()) TM_CHECK(event.depth == 1);
    if (event.resource == leaf->id()) TM_CHECK(event.depth == 2);
    if (event.kind == TraceKind::allocate && event.resource == pool->id())
      TM_CHECK(event.address == block.address && event.nbytes == 1000 && event.generation == block.generation);
    if (event.kind == TraceKind::fail) TM_CHECK(event.detail == static_cast<std::uint8_t>(Code::invalid_size));
  }
}

TM_TEST("eight threads: what the file holds is what they did") {
  TemporaryFile file;
  auto leaf = make_leaf();
  std::shared_ptr<PoolMemoryResource> pool;
  TM_CHECK(PoolMemoryResource::create(leaf, {}, &pool).ok());
  constexpr int kThreads = 8;
  constexpr int kPairs = 20000;
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  on_threads(kThreads, [&](int number) {
    for (int i = 0; i < kPairs; ++i) {
      const Block block = allocate(*pool, 64U * static_cast<unsigned>(1 + (i + number) % 16));
      TM_CHECK(deallocate(*pool, block).ok());
    }
  });
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  const ReadBack found = read_back(file.path);
  const std::size_t allocated = count_of(found, TraceKind::allocate, pool->id());
  const std::size_t freed = count_of(found, TraceKind::deallocate, pool->id());
  // A machine that is too busy to drain drops, and says how much.
  TM_CHECK(allocated + freed + report.dropped >= 2U * kThreads * kPairs);
  TM_CHECK(report.dropped != 0 || (allocated == freed && allocated == kThreads * kPairs));

  // By time, no address is handed out twice before it came back.
  if (report.dropped != 0) return;
  std::vector<TraceEvent> mine;
  for (const TraceEvent& event : found.events) {
    if (event.resource == pool->id() && event.kind <= TraceKind::deallocate) mine.push_back(event);
  }
  std::map<std::uint64_t, std::uint64_t> by_generation;
  for (const TraceEvent& event : mine) by_generation[event.generation] += event.kind == TraceKind::allocate ? 1 : 2;
  TM_CHECK(std::ranges::all_of(by_generation, [](const auto& entry) { return entry.second == 3; }));
}

TM_TEST("what was flushed is in the file before the recording ends") {
  TemporaryFile file;
  auto leaf = make_leaf();
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true, .flush_interval_ns = 3'600'000'000'000}).ok());
  const Block block = allocate(*leaf, 100);
  TM_CHECK(recorder().flush().ok());
  const ReadBack half = read_back(file.path);
  TM_CHECK(!half.closed && count_of(half, TraceKind::allocate, leaf->id()) == 1);
  TM_CHECK(deallocate(*leaf, block).ok());
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  TM_CHECK(read_back(file.path).closed);
}

TM_TEST("a block begins before it ends, however often the file is written meanwhile") {
  TemporaryFile file;
  auto leaf = make_leaf();
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  std::atomic<bool> done{false};
  std::thread flushing([&] {
    while (!done.load()) TM_CHECK(recorder().flush().ok());
  });
  for (int i = 0; i < 20000; ++i) TM_CHECK(deallocate(*leaf, allocate(*leaf, 64)).ok());
  done.store(true);
  flushing.join();
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  std::map<std::uint64_t, std::uint64_t> begun;
  bool in_order = true;
  for (const TraceEvent& event : read_back(file.path).events) {
    if (event.kind == TraceKind::allocate) begun[event.generation] = event.time;
    if (event.kind == TraceKind::deallocate) in_order = in_order && begun[event.generation] <= event.time;
  }
  TM_CHECK(in_order && begun.size() == 20000);
}

TM_TEST("there is one recording at a time, and stopping none is refused") {
  TemporaryFile file;
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).code() == Code::invalid_argument);
  TM_CHECK(recorder().start({.path = file.path}).code() == Code::invalid_argument);  // it is there already
  TM_CHECK(recorder().start({.path = "/nowhere/at/all.tmt"}).code() == Code::driver_error);
  TM_CHECK(!trace_is_on());
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).code() == Code::invalid_argument);
  TM_CHECK(recorder().stop(&report).ok());
}

TM_TEST("a second recording holds nothing of the first") {
  auto leaf = make_leaf();
  for (int round = 0; round < 3; ++round) {
    TemporaryFile file;
    TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
    const Block block = allocate(*leaf, 100);
    RecorderReport report;
    TM_CHECK(recorder().stop(&report).ok());
    TM_CHECK(deallocate(*leaf, block).ok());
    const ReadBack found = read_back(file.path);
    TM_CHECK(count_of(found, TraceKind::allocate, leaf->id()) == 1);
    TM_CHECK(count_of(found, TraceKind::deallocate, leaf->id()) == 0);
  }
}

TM_TEST("a forked child records nothing, leaves the file alone, and can record into its own") {
  TemporaryFile file;
  TemporaryFile other;
  auto leaf = make_leaf();
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  const pid_t child = fork();
  if (child == 0) {
    bool fine = !trace_is_on();
    Block block{};
    fine = fine && leaf->allocate({.nbytes = 777}, &block).ok();
    if (kChildrenStartThreads) fine = fine && recorder().start({.path = other.path, .overwrite = true}).ok();
    BlockState end{};
    fine = fine && leaf->deallocate(block, kDefaultStream, &end).ok();
    RecorderReport report;
    if (kChildrenStartThreads) fine = fine && recorder().stop(&report).ok();
    _exit(fine ? 0 : 1);
  }
  int status = 0;
  TM_CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const Block block = allocate(*leaf, 100);
  TM_CHECK(deallocate(*leaf, block).ok());
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  const ReadBack mine = read_back(file.path);
  TM_CHECK(mine.closed && count_of(mine, TraceKind::allocate, leaf->id()) == 1);
  if (!kChildrenStartThreads) return;
  const ReadBack childs = read_back(other.path);
  TM_CHECK(childs.closed && count_of(childs, TraceKind::deallocate, leaf->id()) == 1 &&
           count_of(childs, TraceKind::allocate, leaf->id()) == 0);
}

TM_TEST("threads that ended are in the file, and their rings are gone") {
  TemporaryFile file;
  auto leaf = make_leaf();
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  for (int round = 0; round < 20; ++round) {
    on_threads(2, [&](int) { TM_CHECK(deallocate(*leaf, allocate(*leaf, 64)).ok()); });
  }
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  TM_CHECK(count_of(read_back(file.path), TraceKind::allocate, leaf->id()) == 40);
}

TM_TEST("a disk that is full loses events and counts them; the program goes on") {
  if (access("/dev/full", W_OK) != 0) {
    std::printf("could not run: there is no /dev/full\n");
    return;
  }
  TM_CHECK(recorder().start({.path = "/dev/full", .overwrite = true}).code() == Code::driver_error);
  TM_CHECK(!trace_is_on());
}

TM_TEST("every kind of report comes out as it went in") {
  TemporaryFile file;
  TM_CHECK(recorder().start({.path = file.path, .overwrite = true}).ok());
  report_map(1, 0x1000, 4096, 2);
  report_unmap(1, 0x1000, 4096);
  report_move(1, 0x3000, 4096, 0x1000, 9);
  report_copy(0x3000, 0x4000, 77, 5);
  report_use(1, 0x3000, 10, 11, 6, 0, 2);
  report_tag(true, 1);
  report_tag(false, 1);
  report_counter(2, -5);
  RecorderReport report;
  TM_CHECK(recorder().stop(&report).ok());
  const ReadBack found = read_back(file.path);
  const auto one = [&](TraceKind kind, auto check) {
    TM_CHECK(std::ranges::count_if(found.events, [&](const TraceEvent& e) { return e.kind == kind && check(e); }) == 1);
  };
  one(TraceKind::map, [](const TraceEvent& e) { return e.address == 0x1000 && e.nbytes == 4096 && e.other == 2; });
  one(TraceKind::unmap, [](const TraceEvent& e) { return e.address == 0x1000 && e.nbytes == 4096; });
  one(TraceKind::move,
      [](const TraceEvent& e) { return e.address == 0x3000 && e.other == 0x1000 && e.generation == 9; });
  one(TraceKind::copy, [](const TraceEvent& e) { return e.other == 0x4000 && e.nbytes == 77 && e.stream == 5; });
  one(TraceKind::use, [](const TraceEvent& e) { return e.generation == 11 && e.stream == 6 && e.detail == 2; });
  one(TraceKind::tag_begin, [](const TraceEvent& e) { return e.tag == 1; });
  one(TraceKind::tag_end, [](const TraceEvent& e) { return e.tag == 1; });
  one(TraceKind::counter, [](const TraceEvent& e) { return e.tag == 2 && static_cast<std::int64_t>(e.other) == -5; });
}

// Prints one line of JSON per step: nanoseconds per 2 MiB page of the bare system calls that mapping, unmapping and
// moving real pages need, and of a memcpy of the same size. A loop in C++ with nothing around the calls: what our own
// calls from Python are held against.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::uint64_t kPage = 2ULL << 20;
constexpr std::uint64_t kPages = 64;
constexpr int kRepeats = 41;
constexpr int kReservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void must(bool worked, const char* call) {
  if (worked) return;
  std::perror(call);
  std::exit(1);
}

double now_ns() {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void report(const char* step, std::uint64_t run, std::vector<double> samples) {
  std::ranges::sort(samples);
  std::printf("{\"question\":\"virtual_memory\",\"step\":\"%s\",\"run\":%llu,\"ns\":%.1f,\"fastest_ns\":%.1f}\n", step,
              static_cast<unsigned long long>(run), samples[samples.size() / 2], samples.front());
}

struct Memory {
  char* base = nullptr;
  int fd = -1;

  Memory() {
    void* const got = ::mmap(nullptr, (2 * kPages + 1) * kPage, PROT_NONE, kReservation, -1, 0);
    must(got != MAP_FAILED, "mmap");
    base = reinterpret_cast<char*>((reinterpret_cast<std::uint64_t>(got) + kPage - 1) & ~(kPage - 1));
    fd = ::memfd_create("bench", MFD_CLOEXEC);
    must(fd >= 0 && ::ftruncate(fd, kPages * kPage) == 0, "memfd_create");
    // Real 2 MiB pages, as the library makes them: touched once, then collapsed. Without them the same loop still runs.
    map(0, kPages);
    for (std::uint64_t page = 0; page < kPages; ++page) {
      base[page * kPage] = 1;
#ifdef MADV_COLLAPSE
      (void)::madvise(base + page * kPage, kPage, MADV_COLLAPSE);
#else
      (void)::madvise(base + page * kPage, kPage, 25);
#endif
    }
    std::memset(base, 1, kPages * kPage);
    unmap(0, kPages);
  }
  void map(std::uint64_t page, std::uint64_t run, std::uint64_t file_page = ~0ULL) const {
    char* const at = base + page * kPage;
    const auto offset = static_cast<off_t>((file_page == ~0ULL ? page : file_page) * kPage);
    must(::mmap(at, run * kPage, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, offset) == at, "mmap");
    must(::mprotect(at, run * kPage, PROT_READ | PROT_WRITE) == 0, "mprotect");
  }
  void unmap(std::uint64_t page, std::uint64_t run) const {
    char* const at = base + page * kPage;
    must(::mmap(at, run * kPage, PROT_NONE, kReservation | MAP_FIXED, -1, 0) == at, "mmap");
  }
};

void measure_runs(const Memory& memory, std::uint64_t run) {
  std::vector<double> map;
  std::vector<double> unmap;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = now_ns();
    for (std::uint64_t page = 0; page < kPages; page += run) memory.map(page, run);
    const double mapped = now_ns();
    for (std::uint64_t page = 0; page < kPages; page += run) memory.unmap(page, run);
    map.push_back((mapped - start) / kPages);
    unmap.push_back((now_ns() - mapped) / kPages);
  }
  report("map + access", run, map);
  report("unmap", run, unmap);
}

void measure_move(const Memory& memory) {
  std::vector<double> samples;
  memory.map(0, 1);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = now_ns();
    for (std::uint64_t step = 0; step < kPages; step += 2) {
      memory.map(kPages, 1, 0);
      memory.unmap(0, 1);
      memory.map(0, 1);
      memory.unmap(kPages, 1);
    }
    samples.push_back((now_ns() - start) / kPages);
  }
  memory.unmap(0, 1);
  report("move", 1, samples);
}

void measure_copy(const Memory& memory) {
  std::vector<double> samples;
  memory.map(0, kPages);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = now_ns();
    for (std::uint64_t page = 0; page < kPages / 2; ++page) {
      std::memcpy(memory.base + (page + kPages / 2) * kPage, memory.base + page * kPage, kPage);
    }
    samples.push_back((now_ns() - start) / (kPages / 2));
  }
  memory.unmap(0, kPages);
  report("memcpy", 1, samples);
}

void measure_reserve(std::uint64_t size) {
  std::vector<double> samples;
  constexpr int kCalls = 200;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = now_ns();
    for (int call = 0; call < kCalls; ++call) {
      void* const got = ::mmap(nullptr, size, PROT_NONE, kReservation, -1, 0);
      must(got != MAP_FAILED && ::munmap(got, size) == 0, "mmap");
    }
    samples.push_back((now_ns() - start) / kCalls);
  }
  report("reserve + release 128 GiB", 1, samples);
}

}  // namespace

int main() {
  const Memory memory;
  measure_runs(memory, 1);
  measure_runs(memory, 16);
  measure_move(memory);
  measure_copy(memory);
  measure_reserve(128ULL << 30);
}

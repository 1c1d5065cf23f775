// Prints lines of JSON: nanoseconds per 2 MiB of the bare system calls behind an elastic pool. "populate" gives a run
// of addresses fresh memory: one mapping of a memory file, one byte touched and one collapse a page, one change of
// access. "recycle" puts a page that exists behind addresses and takes it away again. "move" puts a live page elsewhere
// and "memcpy" copies it. A loop with nothing around the calls: what our pool, from Python, is held against.
#include <fcntl.h>
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
constexpr std::uint64_t kPages = 512;
constexpr int kReservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
constexpr int kCollapse = 25;  // MADV_COLLAPSE

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

void report(const char* step, std::uint64_t pages, std::vector<double> samples) {
  std::ranges::sort(samples);
  std::printf("{\"step\":\"%s\",\"pages\":%llu,\"ns\":%.1f}\n", step, static_cast<unsigned long long>(pages),
              samples[samples.size() / 2]);
}

char* reserve() {
  void* const got = ::mmap(nullptr, (2 * kPages + 1) * kPage, PROT_NONE, kReservation, -1, 0);
  must(got != MAP_FAILED, "mmap");
  return reinterpret_cast<char*>((reinterpret_cast<std::uint64_t>(got) + kPage - 1) & ~(kPage - 1));
}

void map(char* at, std::uint64_t pages, int fd, std::uint64_t file_page) {
  const auto offset = static_cast<off_t>(file_page * kPage);
  must(::mmap(at, pages * kPage, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, offset) == at, "mmap");
  must(::mprotect(at, pages * kPage, PROT_READ | PROT_WRITE) == 0, "mprotect");
}

void unmap(char* at, std::uint64_t pages) {
  must(::mmap(at, pages * kPage, PROT_NONE, kReservation | MAP_FIXED, -1, 0) == at, "mmap");
}

void populate(char* base, std::uint64_t pages, int fd) {
  map(base, pages, fd, 0);
  for (std::uint64_t page = 0; page < pages; ++page) {
    base[page * kPage] = 0;
    (void)::madvise(base + page * kPage, kPage, kCollapse);
  }
}

void drop(char* base, std::uint64_t pages, int fd) {
  unmap(base, pages);
  must(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(pages * kPage)) == 0,
       "fallocate");
}

template <typename Work>
std::vector<double> repeat(int times, std::uint64_t pages, Work work) {
  std::vector<double> samples;
  for (int i = 0; i < times; ++i) {
    const double start = now_ns();
    work();
    samples.push_back((now_ns() - start) / static_cast<double>(pages));
  }
  return samples;
}

}  // namespace

int main() {
  char* const base = reserve();
  const int fd = ::memfd_create("bench", MFD_CLOEXEC);
  must(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(2 * kPages * kPage)) == 0, "memfd_create");
  for (const std::uint64_t pages : {std::uint64_t{1}, std::uint64_t{16}, kPages}) {
    std::vector<double> samples;
    for (int i = 0; i < (pages == kPages ? 7 : 41); ++i) {
      const double start = now_ns();
      populate(base, pages, fd);
      samples.push_back((now_ns() - start) / static_cast<double>(pages));
      drop(base, pages, fd);
    }
    report("populate", pages, samples);
  }
  populate(base, kPages, fd);
  std::memset(base, 1, kPages * kPage);
  unmap(base, kPages);
  for (const std::uint64_t pages : {std::uint64_t{1}, std::uint64_t{16}, kPages}) {
    report("recycle", pages, repeat(201, pages, [&] {
             map(base, pages, fd, 0);
             unmap(base, pages);
           }));
  }
  map(base, kPages, fd, 0);
  report("memcpy", 1, repeat(41, kPages / 2, [&] {
           for (std::uint64_t page = 0; page < kPages / 2; ++page) {
             std::memcpy(base + (page + kPages / 2) * kPage, base + page * kPage, kPage);
           }
         }));
  return 0;
}

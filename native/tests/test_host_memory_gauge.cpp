// What the host driver takes for free memory, read from a folder that looks like a system.
#include <sys/stat.h>

#include <cstdlib>
#include <string>

#include "driver/host/memory_gauge.hpp"
#include "tests/check.hpp"

namespace tensormem {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

// A folder that looks like the parts of a system that the gauge reads.
class FakeSystem {
 public:
  FakeSystem() {
    char name[] = "/tmp/tensormem-gauge-XXXXXX";
    root_ = mkdtemp(name);
    write("proc/meminfo", "MemTotal:    1048576 kB\nMemFree:  1 kB\nMemAvailable:   524288 kB\n");
  }
  ~FakeSystem() { TM_CHECK(std::system(("rm -r " + root_).c_str()) == 0); }
  void write(const std::string& path, const char* text) const {
    const std::string whole = root_ + "/" + path;
    for (std::size_t at = root_.size() + 1; (at = whole.find('/', at)) != std::string::npos; ++at) {
      mkdir(whole.substr(0, at).c_str(), 0700);
    }
    std::FILE* const file = std::fopen(whole.c_str(), "w");
    std::fputs(text, file);
    std::fclose(file);
  }
  MemoryInfo read() const {
    MemoryInfo info;
    TM_CHECK(host::MemoryGauge(root_.c_str()).read(&info).ok());
    return info;
  }
  const char* root() const { return root_.c_str(); }

 private:
  std::string root_;
};

TM_TEST("memory is bounded by control groups of version 2, of every level") {
  const FakeSystem system;
  MemoryInfo info = system.read();
  TM_CHECK(info.total_bytes == kGiB && info.free_bytes == kGiB / 2);
  system.write("proc/self/cgroup", "0::/user/job\n");
  system.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  system.write("sys/fs/cgroup/user/job/memory.current", "1000\n");
  TM_CHECK(system.read().total_bytes == kGiB);
  system.write("sys/fs/cgroup/user/memory.max", "268435456\n");
  system.write("sys/fs/cgroup/user/memory.current", "100000000\n");
  info = system.read();
  TM_CHECK(info.total_bytes == 268435456 && info.free_bytes == 168435456);
  system.write("sys/fs/cgroup/user/memory.stat", "anon 5\nactive_file 7\ninactive_file 60000000\n");
  TM_CHECK(system.read().free_bytes == 228435456);
  // A tighter total below does not hide that the group above is nearly full.
  system.write("sys/fs/cgroup/user/job/memory.max", "134217728\n");
  system.write("sys/fs/cgroup/user/memory.current", "320000000\n");
  info = system.read();
  TM_CHECK(info.total_bytes == 134217728 && info.free_bytes == 8435456);
}

TM_TEST("memory is bounded by control groups of version 1, and by the one mounted as the root of a container") {
  const FakeSystem system;
  system.write("proc/self/cgroup", "5:cpu:/a\n4:memory:/box\n0::/\n");
  system.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
  TM_CHECK(system.read().total_bytes == kGiB);
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "209715200\n");
  system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "9715200\n");
  const MemoryInfo info = system.read();
  TM_CHECK(info.total_bytes == 209715200 && info.free_bytes == 200000000);
}

TM_TEST("claims never promise the same free bytes twice") {
  const FakeSystem system;
  host::MemoryGauge gauge(system.root());
  TM_CHECK(gauge.claim(400 * kMiB).ok());
  const Status refused = gauge.claim(200 * kMiB);
  TM_CHECK(refused.code() == Code::out_of_physical_memory);
  TM_CHECK(refused.failure().facts[0] == 200 * kMiB && refused.failure().facts[1] == 112 * kMiB);
  TM_CHECK(gauge.claim(100 * kMiB).ok());
  gauge.give_back(400 * kMiB);
  TM_CHECK(gauge.claim(400 * kMiB).ok());
  gauge.give_back(500 * kMiB);
  TM_CHECK(gauge.claimed_bytes() == 0);
  system.write("proc/meminfo", "nonsense\n");
  MemoryInfo info;
  TM_CHECK(gauge.read(&info).code() == Code::driver_error);
}

}  // namespace
}  // namespace tensormem

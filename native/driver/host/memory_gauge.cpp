#include "driver/host/memory_gauge.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

constexpr std::size_t kPathBytes = 1024;

// One version of the control groups: where its tree is mounted and what its files are called.
struct GroupFiles {
  const char* root;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // the line of memory.stat
};
constexpr GroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file "};
constexpr GroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

// A text file at a path of two parts.
int read_text(const char* folder, const char* file, char* text, std::size_t capacity) {
  char path[kPathBytes];
  if (std::snprintf(path, sizeof path, "%s/%s", folder, file) >= static_cast<int>(sizeof path)) return ENAMETOOLONG;
  return os::read_text(path, text, capacity);
}

bool read_number(const char* folder, const char* file, std::uint64_t* number) {
  char text[64];
  if (read_text(folder, file, text, sizeof text) != 0) return false;
  if (text[0] < '0' || text[0] > '9') return false;  // "max": no limit
  *number = std::strtoull(text, nullptr, 10);
  return true;
}

std::uint64_t read_reclaimable(const char* folder, const char* key) {
  char text[8192];
  std::uint64_t bytes = 0;
  if (read_text(folder, "memory.stat", text, sizeof text) == 0) find_number(text, key, &bytes);
  return bytes;
}

void bound_by_group(const GroupFiles& files, const char* folder, std::uint64_t machine_bytes, MemoryInfo& info) {
  std::uint64_t limit = 0;
  std::uint64_t usage = 0;
  // Version 1 writes "no limit" as a number larger than any machine.
  if (!read_number(folder, files.limit, &limit) || limit >= machine_bytes) return;
  if (!read_number(folder, files.usage, &usage)) return;
  // Pages of files that nobody uses go first when the group is full, so they count as free.
  const std::uint64_t used = usage - std::min(usage, read_reclaimable(folder, files.reclaimable));
  info.total_bytes = std::min(info.total_bytes, limit);
  info.free_bytes = std::min(info.free_bytes, limit - std::min(limit, used));
}

// A group and every group above it.
void bound_by_groups(const char* root, const GroupFiles& files, const char* group, std::size_t length,
                     MemoryInfo& info) {
  const std::uint64_t machine_bytes = info.total_bytes;
  char folder[kPathBytes];
  const int written =
      std::snprintf(folder, sizeof folder, "%s%s%.*s", root, files.root, static_cast<int>(length), group);
  if (written < 0 || written >= static_cast<int>(sizeof folder)) return;
  const std::size_t root_length = std::strlen(root) + std::strlen(files.root);
  std::size_t end = static_cast<std::size_t>(written);
  while (end > root_length) {
    while (end > root_length && folder[end - 1] == '/') --end;
    folder[end] = '\0';
    bound_by_group(files, folder, machine_bytes, info);
    while (end > root_length && folder[end - 1] != '/') --end;
  }
  // In a container the group's own folder is mounted as the root.
  folder[root_length] = '\0';
  bound_by_group(files, folder, machine_bytes, info);
}

// Lines "number:controllers:path"; version 2 has number 0 and no controllers.
void bound_by_all_groups(const char* root, MemoryInfo& info) {
  char text[4096];
  if (read_text(root, "proc/self/cgroup", text, sizeof text) != 0) return;
  for (const char* line = text; *line != '\0';) {
    const std::size_t length = std::strcspn(line, "\n");
    const char* const first = std::strchr(line, ':');
    const char* const second = first == nullptr ? nullptr : std::strchr(first + 1, ':');
    if (second != nullptr && second < line + length) {
      const auto path_length = static_cast<std::size_t>(line + length - second - 1);
      const auto names = static_cast<std::size_t>(second - first - 1);
      if (names == 0) bound_by_groups(root, kVersion2, second + 1, path_length, info);
      if (names == 6 && std::strncmp(first + 1, "memory", 6) == 0) {
        bound_by_groups(root, kVersion1, second + 1, path_length, info);
      }
    }
    line += length + (line[length] == '\n' ? 1 : 0);
  }
}

}  // namespace

bool find_number(const char* text, const char* key, std::uint64_t* number) noexcept {
  const std::size_t length = std::strlen(key);
  for (const char* line = text; line != nullptr && *line != '\0';) {
    if (std::strncmp(line, key, length) == 0) {
      *number = std::strtoull(line + length, nullptr, 10);
      return true;
    }
    line = std::strchr(line, '\n');
    if (line != nullptr) ++line;
  }
  return false;
}

Status MemoryGauge::read(MemoryInfo* info) const noexcept {
  char text[4096];
  if (const int error = read_text(root_, "proc/meminfo", text, sizeof text); error != 0) {
    return Status::driver_error(error, "open /proc/meminfo");
  }
  std::uint64_t total = 0;
  std::uint64_t available = 0;
  if (!find_number(text, "MemTotal:", &total) || !find_number(text, "MemAvailable:", &available)) {
    return Status::driver_error(ENODATA, "/proc/meminfo has no MemTotal or MemAvailable");
  }
  MemoryInfo found{available * 1024, total * 1024};
  bound_by_all_groups(root_, found);
  *info = found;
  return {};
}

bool MemoryGauge::is_too_large(std::uint64_t nbytes) noexcept {
  if (nbytes <= total_.load(std::memory_order_relaxed)) [[likely]]
    return false;
  MemoryInfo info;
  if (!read(&info).ok()) return false;  // not surely true: let the allocation decide
  total_.store(info.total_bytes, std::memory_order_relaxed);
  return nbytes > info.total_bytes;
}

// Reading takes a sizeable part of the time of making one huge page, so half of what was free a moment ago may be
// claimed without looking again.
bool MemoryGauge::claim_from_slack(std::uint64_t nbytes) noexcept {
  if (os::monotonic_nanoseconds() - read_at_.load(std::memory_order_relaxed) > kFreshNanoseconds) return false;
  std::uint64_t slack = slack_.load(std::memory_order_relaxed);
  while (nbytes <= slack) {
    if (slack_.compare_exchange_weak(slack, slack - nbytes, std::memory_order_relaxed)) return true;
  }
  return false;
}

Status MemoryGauge::claim(std::uint64_t nbytes) noexcept {
  if (claim_from_slack(nbytes)) {
    claimed_.fetch_add(nbytes, std::memory_order_relaxed);
    return {};
  }
  MemoryInfo info;
  TM_TRY(read(&info));
  std::uint64_t before = claimed_.load(std::memory_order_relaxed);
  std::uint64_t left = 0;
  do {
    left = info.free_bytes - std::min(info.free_bytes, before);
    if (nbytes > left) {
      return Status::fail(Code::out_of_physical_memory, "not enough memory available", nbytes, left);
    }
  } while (!claimed_.compare_exchange_weak(before, before + nbytes, std::memory_order_relaxed));
  slack_.store((left - nbytes) / 2, std::memory_order_relaxed);
  read_at_.store(os::monotonic_nanoseconds(), std::memory_order_relaxed);
  return {};
}

}  // namespace tensormem::host

#include "trace/environment.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "trace/file_format.hpp"
#include "trace/record.hpp"
#include "trace/recorder.hpp"

namespace tensormem {

namespace {

constexpr const char* kOwner = "_TENSORMEM_TRACE_OWNER";  // the process whose file TENSORMEM_TRACE names
constexpr std::string_view kProcess = "{pid}";

std::string_view value_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::string path_of(std::string_view pattern) {
  std::string path(pattern);
  const std::string process = std::to_string(getpid());
  for (auto at = path.find(kProcess); at != std::string::npos; at = path.find(kProcess, at + process.size()))
    path.replace(at, kProcess.size(), process);
  return path;
}

// An older trace, or an empty file made for this one; anything else is somebody's work.
bool is_replaceable(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) return false;
  unsigned char begin[4] = {};
  const std::size_t count = std::fread(begin, 1, sizeof begin, file.get());
  return count == 0 || (count == sizeof begin && std::memcmp(begin, kTraceMagic, sizeof begin) == 0);
}

// Where `tensormem record` listens; -1 where nobody does. A program may have closed it, and opened another file there.
int failure_pipe() {
  const std::string_view text = value_of("_TENSORMEM_TRACE_FAILURES");
  int fd = -1;
  std::uint64_t inode = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, wrong] = std::from_chars(text.data(), end, fd);
  if (wrong != std::errc() || rest == end || std::from_chars(rest + 1, end, inode).ec != std::errc()) return -1;
  struct stat facts{};
  return ::fstat(fd, &facts) == 0 && S_ISFIFO(facts.st_mode) && facts.st_ino == inode ? fd : -1;
}

}  // namespace

bool environment_follows_children() { return value_of("TENSORMEM_TRACE").find(kProcess) != std::string_view::npos; }

bool environment_asks_for_trace() {
  const std::string_view pattern = value_of("TENSORMEM_TRACE");
  if (pattern.empty() || pattern == "off") return false;
  const std::string_view owner = value_of(kOwner);
  return environment_follows_children() || owner.empty() || owner == std::to_string(getpid());
}

Status start_trace_of_environment() noexcept {
  try {
    if (trace_is_on() || !environment_asks_for_trace()) return {};
    const std::string path = path_of(value_of("TENSORMEM_TRACE"));
    ::setenv(kOwner, std::to_string(getpid()).c_str(), 1);
    return TraceRecorder::instance().start({.path = path,
                                            .overwrite = is_replaceable(path),
                                            .stacks = value_of("TENSORMEM_TRACE_STACKS") == "1",
                                            .failure_fd = failure_pipe()});
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory to record with", 0);
  }
}

}  // namespace tensormem

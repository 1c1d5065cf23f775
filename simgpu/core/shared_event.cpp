#include "core/shared_event.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace simgpu {

namespace {

constexpr std::size_t kFileBytes = 4096;
constexpr auto kLook = std::chrono::microseconds(50);
constexpr int kLooks = 1'200'000;  // a minute

}  // namespace

Result open_note(const ProcessNote& note, std::uint64_t mark, int* fd) {
  if (note.mark != mark || note.process <= 0 || note.fd < 0) return kInvalidValue;
  if (note.process == getpid()) return kInvalidContext;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(note.process),
                static_cast<long long>(note.fd));
  *fd = ::open(path, O_RDWR | O_CLOEXEC);
  return *fd < 0 ? kInvalidHandle : kSuccess;
}

void SharedEvent::Page::pass(std::uint64_t number) {
  std::uint64_t known = passed.load();
  while (known < number && !passed.compare_exchange_weak(known, number)) {
  }
}

void SharedEvent::Page::wait_for(std::uint64_t number) const {
  for (int look = 0; look < kLooks && passed.load() < number; ++look) std::this_thread::sleep_for(kLook);
}

Result SharedEvent::map(int fd, std::shared_ptr<SharedEvent>* event) {
  void* const got = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) {
    ::close(fd);
    return kOutOfMemory;
  }
  *event = std::make_shared<SharedEvent>(fd, static_cast<Page*>(got));
  return kSuccess;
}

Result SharedEvent::create(std::shared_ptr<SharedEvent>* event) {
  const int fd = memfd_create("tensormem-simgpu-event", MFD_CLOEXEC);
  if (fd < 0) return kOperatingSystem;
  if (ftruncate(fd, kFileBytes) != 0) {
    ::close(fd);
    return kOperatingSystem;
  }
  return map(fd, event);
}

Result SharedEvent::open(const ProcessNote& note, std::shared_ptr<SharedEvent>* event) {
  int fd = -1;
  SIM_TRY(open_note(note, kEventMark, &fd));
  if (lseek(fd, 0, SEEK_END) != static_cast<off_t>(kFileBytes)) {
    ::close(fd);
    return kInvalidHandle;
  }
  return map(fd, event);
}

SharedEvent::~SharedEvent() {
  munmap(page_, kFileBytes);
  ::close(fd_);
}

ProcessNote SharedEvent::note() const {
  ProcessNote note;
  note.mark = kEventMark;
  note.process = getpid();
  note.fd = fd_;
  return note;
}

}  // namespace simgpu

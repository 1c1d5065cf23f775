#include "core/descriptors.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace simgpu {

namespace {

// Room for one descriptor beside the letter.
struct Envelope {
  explicit Envelope(Letter* letter) : part{letter, sizeof *letter} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  iovec part;
  msghdr message{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

bool post(int socket, int file, Letter letter) {
  Envelope envelope(&letter);
  cmsghdr* const header = CMSG_FIRSTHDR(&envelope.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  return sendmsg(socket, &envelope.message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof letter);
}

Result take_plain(int fd, const struct stat& facts, int* file, Letter* letter) {
  *file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  letter->size = static_cast<std::uint64_t>(facts.st_size);
  return *file < 0 ? kOperatingSystem : kSuccess;
}

}  // namespace

Result seal(int file, std::uint64_t size, std::uint64_t note, int* fd) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) return kOperatingSystem;
  const bool posted = post(ends[0], file, Letter{Letter::kMark, size, note});
  ::close(ends[0]);
  if (!posted) {
    ::close(ends[1]);
    return kOperatingSystem;
  }
  *fd = ends[1];
  return kSuccess;
}

Result unseal(int fd, int* file, Letter* letter) {
  struct stat facts{};
  if (fstat(fd, &facts) != 0) return kInvalidValue;
  if (S_ISREG(facts.st_mode)) return take_plain(fd, facts, file, letter);
  if (!S_ISSOCK(facts.st_mode)) return kInvalidValue;
  Envelope envelope(letter);
  const ssize_t got = recvmsg(fd, &envelope.message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got < 0 ? nullptr : CMSG_FIRSTHDR(&envelope.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof *file)) {
    return kInvalidValue;
  }
  std::memcpy(file, CMSG_DATA(header), sizeof *file);
  if (got == static_cast<ssize_t>(sizeof *letter) && letter->mark == Letter::kMark) return kSuccess;
  ::close(*file);
  return kInvalidValue;
}

}  // namespace simgpu

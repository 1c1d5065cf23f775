#include "trace/writer.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "trace/crc32.hpp"

namespace tensormem {

TraceWriter::~TraceWriter() { abandon(); }

Status TraceWriter::open(const std::string& path, bool overwrite, TraceFileHeader header) noexcept {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (overwrite ? O_TRUNC : O_EXCL);
  fd_ = ::open(path.c_str(), flags, 0644);
  if (fd_ < 0) {
    if (errno == EEXIST)
      return Status::fail(Code::invalid_argument,
                          "the trace file exists already; ask to overwrite it, or name another");
    return Status::driver_error(errno, "open");
  }
  size_ = 0;
  sequence_ = 0;
  index_.clear();
  std::memcpy(header.magic, kTraceMagic, sizeof header.magic);
  header.crc = crc32(&header, sizeof header - sizeof header.crc);
  Status status = append(&header, sizeof header, nullptr, 0);
  if (!status.ok()) abandon();
  return status;
}

Status TraceWriter::write(ChunkHeader chunk, const void* payload, std::uint64_t nbytes) noexcept {
  chunk.nbytes = nbytes;
  chunk.sequence = sequence_;
  chunk.payload_crc = crc32(payload, nbytes);
  chunk.crc = crc32(&chunk, sizeof chunk - sizeof chunk.crc);
  try {
    index_.push_back({.offset = size_,
                      .first_time = chunk.first_time,
                      .last_time = chunk.last_time,
                      .count = chunk.count,
                      .thread = chunk.thread,
                      .type = chunk.type});
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory for the index of the trace", sizeof(IndexEntry));
  }
  Status status = append(&chunk, sizeof chunk, payload, nbytes);
  if (status.ok()) {
    ++sequence_;
  } else {
    index_.pop_back();
  }
  return status;
}

Status TraceWriter::finish(EndRecord end) noexcept {
  end.index_offset = size_;
  const auto entries = static_cast<std::uint32_t>(index_.size());
  // A copy: writing the index adds to it.
  std::vector<IndexEntry> written;
  written.swap(index_);
  index_.reserve(2);
  ChunkHeader chunk{.type = ChunkType::index, .count = entries, .dropped = end.dropped};
  Status status = write(chunk, written.data(), written.size() * sizeof(IndexEntry));
  chunk.type = ChunkType::end;
  chunk.count = 1;
  if (status.ok()) status = write(chunk, &end, sizeof end);
  abandon();
  return status;
}

void TraceWriter::abandon() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Status TraceWriter::append(const void* head, std::uint64_t head_bytes, const void* body,
                           std::uint64_t body_bytes) noexcept {
  iovec pieces[2] = {{const_cast<void*>(head), head_bytes}, {const_cast<void*>(body), body_bytes}};
  iovec* next = pieces;
  int left = body_bytes == 0 ? 1 : 2;
  while (left > 0) {
    const ssize_t taken = ::writev(fd_, next, left);
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) {
      const int error = taken < 0 ? errno : ENOSPC;
      // A torn chunk would end the file for readers; if this fails too, they stop in front of it.
      if (::ftruncate(fd_, static_cast<off_t>(size_)) == 0) (void)::lseek(fd_, static_cast<off_t>(size_), SEEK_SET);
      return Status::driver_error(error, "writev");
    }
    auto rest = static_cast<std::uint64_t>(taken);
    while (left > 0 && rest >= next->iov_len) {
      rest -= next->iov_len;
      ++next;
      --left;
    }
    if (left > 0) {
      next->iov_base = static_cast<char*>(next->iov_base) + rest;
      next->iov_len -= rest;
    }
  }
  size_ += head_bytes + body_bytes;
  return {};
}

}  // namespace tensormem

// Owns: one trace file that is being written: appends chunks, each in one piece, and closes with an index. What the
// file system takes only in part is cut off again, so that the file ends with a whole chunk at all times. Must not
// know: where events come from, or threads: its owner calls one function at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "trace/file_format.hpp"

namespace tensormem {

class TraceWriter {
 public:
  TraceWriter() = default;
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // With `overwrite`, a file that is there is replaced; otherwise that is refused.
  Status open(const std::string& path, bool overwrite, TraceFileHeader header) noexcept;
  bool is_open() const noexcept { return fd_ >= 0; }

  // `chunk` names type, count, thread, times and what was dropped; the rest is filled in.
  Status write(ChunkHeader chunk, const void* payload, std::uint64_t nbytes) noexcept;
  // Writes the index and closes the file.
  Status finish(EndRecord end) noexcept;
  // Closes without another byte: the file belongs to somebody else.
  void abandon() noexcept;

  std::uint64_t bytes_written() const noexcept { return size_; }

 private:
  Status append(const void* head, std::uint64_t head_bytes, const void* body, std::uint64_t body_bytes) noexcept;

  int fd_ = -1;
  std::uint64_t size_ = 0;  // whole chunks only
  std::uint32_t sequence_ = 0;
  std::vector<IndexEntry> index_;
};

}  // namespace tensormem

#include "resource/resource.hpp"

#include <atomic>

namespace tensormem {

namespace {

std::uint32_t next_resource_id() {
  static std::atomic<std::uint32_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

constexpr const char* kNoTracking =
    "this resource does not track uses across streams; wrap one that does, or synchronize by yourself";

}  // namespace

Resource::Resource(Driver& driver, std::int32_t device) : driver_(driver), device_(device), id_(next_resource_id()) {}

Status Resource::prepare_block_use(const Block&, StreamId stream, Access) {
  return Status::fail(Code::stream_misuse, kNoTracking, stream);
}

Status Resource::finish_block_use(const Block&, StreamId stream, Access) {
  return Status::fail(Code::stream_misuse, kNoTracking, stream);
}

Status Resource::refuse_request(const AllocRequest& request) const {
  if (!is_power_of_two(request.alignment) || request.alignment > kMaxAlignment)
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two, at most 1 GiB", request.alignment);
  if (request.nbytes == 0) return Status::fail(Code::invalid_size, "a block has at least one byte", request.nbytes);
  return Status::fail(Code::invalid_size, "too large to add the alignment to", request.nbytes);
}

Status Resource::refuse_stream(StreamId stream) const {
  return Status::fail(Code::stream_misuse, "the stream was destroyed, or belongs to another process or driver", stream);
}

}  // namespace tensormem

#include "resource/resource.hpp"

#include "order/stream_holds.hpp"

namespace tensormem {

namespace {

void note_failure(const Failure& failure, TraceKind kind, TraceEvent* event) {
  event->kind = TraceKind::fail;
  event->detail = static_cast<std::uint8_t>(failure.code);
  event->other = static_cast<std::uint64_t>(kind);
  // What was free when memory ran out.
  if (kind == TraceKind::allocate && failure.code == Code::out_of_memory) event->generation = failure.facts[1];
}

constexpr const char* kNoTracking =
    "this resource does not track uses across streams; wrap one that does, or synchronize by yourself";

}  // namespace

Resource::Resource(Driver& driver, std::int32_t device, const MemorySpace& space)
    : driver_(driver), device_(device), space_(space), id_(add_reporter(0, "", text_of(space))) {}

Resource::Resource(const Resource* upstream)
    : driver_(upstream->driver_),
      device_(upstream->device_),
      space_(upstream->space_),
      id_(add_reporter(upstream->id_, "", text_of(upstream->space_))) {}

Resource::~Resource() { remove_reporter(id_); }

Status Resource::allocate_traced(const AllocRequest& request, Block* block) {
  const TraceNesting nesting;
  Status allocated = do_allocate(request, block);
  if (!allocated.ok()) [[unlikely]]
    allocated = allocate_after_reaping(request, block, std::move(allocated));
  TraceEvent event;
  event.nbytes = request.nbytes;
  event.stream = request.stream;
  event.resource = id_;
  event.tag = request.tag;
  event.depth = nesting.depth();
  if (allocated.ok()) [[likely]] {
    event.kind = TraceKind::allocate;
    event.address = block->address;
    event.generation = block->generation;
    event.other = 1ULL << block->alignment_log2;
  } else {
    note_failure(allocated.failure(), TraceKind::allocate, &event);
  }
  if (event.depth == 0) event.stack = trace_stack();
  trace_record(&event);
  return allocated;
}

Status Resource::allocate_after_reaping(const AllocRequest& request, Block* block, Status refused) {
  if (!is_shortage(refused.code()) || stream_holds().reap() == 0) return refused;
  return do_allocate(request, block);
}

// Stamped before the call: from then on another thread may get the address.
Status Resource::deallocate_traced(const Block& block, StreamId stream, BlockState* end) {
  const TraceNesting nesting;
  const Block given = block;  // the caller's may be gone when its resource is done with it
  TraceEvent event;
  event.time = trace_ticks();
  Status deallocated = do_deallocate(block, stream, end);
  event.kind = TraceKind::deallocate;
  event.address = given.address;
  event.nbytes = given.nbytes;
  event.generation = given.generation;
  event.stream = stream;
  event.resource = id_;
  event.tag = given.tag;
  event.depth = nesting.depth();
  if (deallocated.ok() || deallocated.code() == Code::out_of_bounds) [[likely]] {
    event.detail = static_cast<std::uint8_t>(*end);
  } else {
    note_failure(deallocated.failure(), TraceKind::deallocate, &event);
  }
  if (event.depth == 0) event.stack = trace_stack();
  trace_record_at(event);
  return deallocated;
}

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

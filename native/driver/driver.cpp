#include "driver/driver.hpp"

namespace tensormem {

Status Driver::advise(std::uint64_t, std::uint64_t, Advice, std::int32_t) {
  return Status::fail(Code::not_supported, "advice about managed memory");
}

Status Driver::async_pool_create(std::int32_t, std::uint64_t, AsyncPool* pool) {
  *pool = kNoPool;
  return {};
}

Status Driver::async_pool_destroy(AsyncPool) { return {}; }

Status Driver::async_pool_keep(AsyncPool, std::uint64_t) { return {}; }

Status Driver::stream_is_capturing(StreamId, bool* capturing) {
  *capturing = false;
  return {};
}

Status Driver::event_create_timed(std::int32_t device, EventHandle* event) { return event_create(device, event); }

Status Driver::external_import(std::int32_t, std::int32_t, std::uint64_t, std::uint64_t*) {
  return Status::fail(Code::not_supported, "the import of external memory");
}

Status Driver::external_release(std::uint64_t) {
  return Status::fail(Code::not_supported, "the import of external memory");
}

// What is done is synchronized with all the same: drivers trim their pools then.
Status Driver::stream_wait(StreamId stream, const Wait& wait) {
  bool done = false;
  TM_TRY(stream_query(stream, &done));
  if (!done) TM_TRY(wait.by_asking([&](bool* passed) { return stream_query(stream, passed); }));
  return stream_synchronize(stream);
}

Status Driver::stream_close(StreamId stream, const Wait& wait) {
  TM_TRY(stream_wait(stream, wait));
  return stream_destroy(stream);
}

Status Driver::event_wait(EventHandle event, const Wait& wait) {
  bool done = false;
  TM_TRY(event_query(event, &done));
  if (!done) {
    TM_TRY(wait.by_asking([&](bool* passed) {
      if (event_query(event, passed).ok()) return Status();
      return Status::fail(Code::stream_misuse, "the event was closed while it was waited for", 0);
    }));
  }
  return event_synchronize(event);
}

Status Driver::map_run(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::int32_t device,
                       AccessFlags access) {
  Status status;
  std::uint64_t mapped = 0;
  std::uint64_t end = address;
  for (; mapped < count; ++mapped) {
    const MapPiece& piece = pieces[mapped];
    status = map(end, piece.size, piece.physical, piece.physical_offset);
    if (!status.ok()) break;
    end += piece.size;
  }
  if (status.ok() && access != AccessFlags::none) status = set_access(address, end - address, device, access);
  if (status.ok()) return {};
  // The last one first, so that no step back needs more memory areas than the steps forth had. A driver that refuses
  // once is asked again.
  for (; mapped > 0; --mapped) {
    const std::uint64_t size = pieces[mapped - 1].size;
    end -= size;
    if (!unmap(end, size).ok()) (void)unmap(end, size).ok();
  }
  return status;
}

}  // namespace tensormem

#include "resource/logging_resource_adaptor.hpp"

#include "resource/wall_clock.hpp"

namespace tensormem {

namespace {

std::atomic<std::uint64_t> g_next_order{1};

}  // namespace

Status LoggingResourceAdaptor::do_allocate(const AllocRequest& request, Block* block) {
  if (sink_ == nullptr) return upstream().allocate(request, block);
  Status result = upstream().allocate(request, block);
  LogRecord record = stamped(LogAction::allocate);
  record.nbytes = request.nbytes;
  record.stream = request.stream;
  record.tag = request.tag;
  if (result.ok()) [[likely]] {
    record.address = block->address;
    record.generation = block->generation;
  }
  emit(&record, result);
  return result;
}

// Stamped before the upstream may hand the address to somebody else: in the order of their numbers, a free always comes
// before the next allocation at its address.
Status LoggingResourceAdaptor::do_deallocate(const Block& block, StreamId stream, BlockState* end) {
  if (sink_ == nullptr) return upstream().deallocate(block, stream, end);
  LogRecord record = stamped(LogAction::deallocate);
  record.nbytes = block.nbytes;
  record.stream = stream;
  record.tag = block.tag;
  record.address = block.address;
  record.generation = block.generation;
  Status result = upstream().deallocate(block, stream, end);
  if (is_taken_back(result)) [[likely]]
    record.state = *end;
  emit(&record, result);
  return result;
}

Status LoggingResourceAdaptor::reap_pending() {
  if (sink_ == nullptr) return upstream().reap_pending();
  LogRecord record = stamped(LogAction::reap);
  Status result = upstream().reap_pending();
  emit(&record, result);
  return result;
}

LogRecord LoggingResourceAdaptor::stamped(LogAction action) const {
  LogRecord record;
  record.order = g_next_order.fetch_add(1, std::memory_order_relaxed);
  record.timestamp_ns = wall_clock_ns();
  record.thread = thread_number();
  record.device = device();
  record.action = action;
  return record;
}

void LoggingResourceAdaptor::emit(LogRecord* record, const Status& result) {
  if (!result.ok()) [[unlikely]] {
    record->code = result.code();
    record->what = result.failure().what;
    record->driver_code = result.failure().driver_code;
  }
  if (!sink_->emit(*record).ok()) [[unlikely]]
    dropped_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tensormem

// Owns: what every resource is: it hands out blocks and takes them back, in stream order. Leaves make memory,
// suballocators cut it up, adaptors wrap one upstream and forward. The contract, for all of them:
//  - Thread-safe. On failure nothing has changed and the Status carries facts.
//  - Every block has a fresh, process-wide generation; every path checks (address, generation) before it acts.
//  - `deallocate` orders the end of the block behind every use it knows of; `bytes_outstanding` counts a block until it
//  is
//    really free; `reap_pending` frees what is proven done and keeps the rest.
//  - Callers may hold the GIL. Short sections under a lock of ours are fine; before anything slow, and before calling
//  an
//    upstream, a resource holds no lock, and before blocking it opens a BlockingRegion.
//  - Tracking of uses is off unless a resource says otherwise: false safety is worse than none.
// Must not know: Python, reports, who sits above it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "alloc/block.hpp"
#include "base/align.hpp"
#include "base/interned.hpp"
#include "base/stats_fields.hpp"
#include "driver/driver.hpp"
#include "driver/memory_space.hpp"
#include "order/block_uses.hpp"
#include "resource/memory_maker.hpp"
#include "trace/record.hpp"
#include "trace/reporters.hpp"

namespace tensormem {

struct AllocRequest {
  std::uint64_t nbytes = 0;
  std::uint64_t alignment = 256;
  StreamId stream = kDefaultStream;
  TagId tag = kUntagged;
  MemoryMaker* maker = nullptr;  // for leaves of a kind: who makes the bytes; nullptr for the leaf itself
  bool zeroed = false;           // a wish: whoever can hand out zeros at no cost does, and says so on the block
};

class Resource {
 public:
  // One that makes memory, in `space`.
  Resource(Driver& driver, std::int32_t device, const MemorySpace& space);
  // One over another, whose memory it hands out.
  explicit Resource(const Resource* upstream);
  virtual ~Resource();
  Resource(const Resource&) = delete;
  Resource& operator=(const Resource&) = delete;

  Status allocate(const AllocRequest& request, Block* block) {
    if (trace_is_on()) [[unlikely]]
      return allocate_traced(request, block);
    Status made = do_allocate(request, block);
    if (!made.ok()) [[unlikely]]
      return allocate_after_reaping(request, block, std::move(made));
    return made;
  }
  // `*end` says what became of the block: freed, retired until the stream has passed, or quarantined. One failure is a
  // report: with `out_of_bounds` the block was taken back, and was found damaged; `*end` is set.
  Status deallocate(const Block& block, StreamId stream, BlockState* end) {
    if (trace_is_on()) [[unlikely]]
      return deallocate_traced(block, stream, end);
    return do_deallocate(block, stream, end);
  }

  virtual std::uint64_t bytes_outstanding() const = 0;
  virtual Stats stats() const = 0;
  virtual BlockState state_of(const Block& block) const = 0;
  virtual Status reap_pending() { return {}; }
  // Walks all of its books; takes its locks. What has none of its own is as valid as what it stands on.
  virtual bool is_valid() const = 0;

  // Whether a block exists from a point of its stream on, so that other streams have to wait for that point.
  virtual bool is_stream_ordered() const { return false; }

  virtual bool supports_block_use_tracking() const { return false; }
  virtual Status prepare_block_use(const Block& block, StreamId stream, Access access);
  virtual Status finish_block_use(const Block& block, StreamId stream, Access access);

  // What it is called in traces.
  void set_name(std::string_view name) noexcept { rename_reporter(id_, name); }

  Driver& driver() const { return driver_; }
  // Where its memory is and who can touch it; never changes.
  const MemorySpace& space() const { return space_; }
  std::int32_t device() const { return device_; }
  // Stamped into every block this resource makes, so that another's is told from a stale one of ours.
  std::uint32_t id() const { return id_; }

 protected:
  // What every resource writes; callers, and resources above, come through `allocate` and `deallocate`, which report.
  virtual Status do_allocate(const AllocRequest& request, Block* block) = 0;
  virtual Status do_deallocate(const Block& block, StreamId stream, BlockState* end) = 0;

  // Size, alignment and stream, before anything happens.
  Status check_request(const AllocRequest& request) const {
    const bool fine = is_power_of_two(request.alignment) && request.alignment <= kMaxAlignment && request.nbytes != 0 &&
                      request.nbytes <= kNoOverflowLimit - request.alignment;
    if (!fine) [[unlikely]]
      return refuse_request(request);
    return check_stream(request.stream);
  }
  Status check_stream(StreamId stream) const {
    if (stream == kDefaultStream || driver_.stream_is_valid(stream)) [[likely]]
      return {};
    return refuse_stream(stream);
  }

 private:
  Status allocate_traced(const AllocRequest& request, Block* block);
  // Before a shortage is told: what was held for streams that have passed is released, and then there may be room.
  Status allocate_after_reaping(const AllocRequest& request, Block* block, Status refused);
  Status deallocate_traced(const Block& block, StreamId stream, BlockState* end);
  Status refuse_request(const AllocRequest& request) const;
  Status refuse_stream(StreamId stream) const;

  Driver& driver_;
  const std::int32_t device_;
  const MemorySpace space_;
  const std::uint32_t id_;
};

using ResourcePtr = std::shared_ptr<Resource>;

}  // namespace tensormem

// Owns: the leaf over a driver's stream-ordered allocation: memory that exists from a point of one stream to a point of
// another. Other streams wait for the first point before they use it, and the last point waits for them; nothing is
// retired here, because the driver itself keeps the memory until the stream has passed.
// Must not know: which driver it is, or how it caches.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "alloc/block_table.hpp"
#include "alloc/generation.hpp"
#include "base/fork_guard.hpp"
#include "base/spinlock.hpp"
#include "order/stream_order.hpp"
#include "resource/resource.hpp"

namespace tensormem {

class AsyncMemoryResource final : public Resource {
 public:
  // With a pool of its own, which keeps `keep_bytes` of free memory for the next allocations.
  static Status create(Driver& driver, std::int32_t device, std::uint64_t keep_bytes,
                       std::shared_ptr<AsyncMemoryResource>* out);
  ~AsyncMemoryResource() override;

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override;
  Stats stats() const override;
  BlockState state_of(const Block& block) const override;

  bool is_stream_ordered() const override { return true; }
  bool supports_block_use_tracking() const override { return true; }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

  // Gives the pool's free memory back to the device, keeping at most so much.
  Status trim(std::uint64_t keep_bytes);
  // How much of it is kept from now on.
  Status keep(std::uint64_t keep_bytes);
  bool is_valid() const override;

 private:
  AsyncMemoryResource(Driver& driver, std::int32_t device, AsyncPool pool)
      : Resource(driver, device, space_of(driver, device)), pool_(pool), order_(driver, device) {}

  // What both vendors promise for their stream-ordered memory; more is reached by asking for more.
  static constexpr std::uint64_t kNaturalAlignment = 256;

  // With the lock: the entry of a live block, or why there is none.
  Status find_live(const Block& block, BlockEntry** entry);
  // With the lock, which is let go while an event is recorded: the same, and the memory's beginning is among the uses
  // that `stream` must come after.
  Status find_begun(std::unique_lock<Spinlock>& lock, const Block& block, StreamId stream, BlockEntry** entry);
  Status take_out(const Block& block, StreamId stream, BlockEntry* entry, std::uint64_t* base, Uses* others);
  void put_back(const BlockEntry& entry, std::uint64_t base);

  const AsyncPool pool_;
  StreamOrder order_;
  mutable Spinlock lock_;  // guards everything below; never held over the driver or a wait
  ForkGuard fork_guard_{lock_};
  BlockTable table_;
  std::unordered_map<std::uint64_t, std::uint64_t> bases_;  // of blocks whose address was raised to an alignment
  GenerationSource generations_;
  Stats stats_;
};

}  // namespace tensormem

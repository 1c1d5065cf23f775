// Owns: what is outstanding and who asked for it: every block that passed and was not given back yet, with the time and
// the caller's stack. A leak is what this still knows at the end.
// Must not know: what a stack is. Hooks are called without any lock of ours.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/captured_stack.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

struct TrackedBlock {
  Block block;
  std::int64_t timestamp_ns = 0;  // wall clock
  CapturedStack stack;
};

struct TagTotal {
  TagId tag = kUntagged;
  std::uint64_t nbytes = 0;
  std::uint64_t count = 0;
};

enum class TrackedOrder : std::uint8_t { largest_first = 0, oldest_first = 1 };

class TrackingResourceAdaptor final : public ResourceAdaptor {
 public:
  explicit TrackingResourceAdaptor(ResourcePtr upstream, StackHooks hooks = {})
      : ResourceAdaptor(std::move(upstream)), hooks_(std::move(hooks)) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;

  std::uint64_t outstanding_bytes() const;
  std::uint64_t outstanding_count() const;
  // Replaces `*blocks`. Equals come in the order of their generations.
  void outstanding(TrackedOrder order, std::vector<TrackedBlock>* blocks) const;
  // Replaces `*totals`, the tag with the most bytes first.
  void totals_by_tag(std::vector<TagTotal>* totals) const;

  bool is_valid() const override;

 private:
  Status remember(TrackedBlock tracked);

  const StackHooks hooks_;
  mutable std::mutex mutex_;  // guards the rest
  ForkGuard fork_guard_{mutex_};
  // By generation, not by address: an address may have its next owner before the last one is forgotten.
  std::unordered_map<std::uint64_t, TrackedBlock> blocks_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tensormem

// Cutting and joining ranges that stay live: for owners who hand a range on without giving it back.
#include "alloc/offset_allocator.hpp"
#include "base/align.hpp"

namespace tensormem {

Status OffsetAllocator::split(std::uint32_t node, std::uint64_t size, std::uint32_t* rest) noexcept {
  if (!is_live(node)) return Status::fail(Code::invalid_argument, "no live range has this node", node);
  if (size == 0 || !is_aligned(size, granule()) || size >= this->size(node))
    return Status::fail(Code::invalid_size, "a range is cut inside, at a multiple of the granule", size);
  TM_TRY(ensure_storage(capacity_, 1));
  const Ref first = ref_of(node);
  const std::uint64_t kept = size >> granule_bits_;
  const std::uint64_t left = (at(first).size & ~kUsed) - kept;
  const Ref second = spare_[--spare_count_];
  const Ref after = at(first).after;
  at(second) = {at(first).offset + kept, left | kUsed, first, after, 0, 0};
  at(first).size = kept | kUsed;
  at(first).after = second;
  at(after).before = second;
  *rest = node_of(second);
  TM_WALK(is_valid());
  return {};
}

void OffsetAllocator::merge(std::uint32_t node) noexcept {
  const Ref first = ref_of(node);
  const Ref second = at(first).after;
  TM_ASSERT(is_live(node) && live_node(second) != kNoNode);
  const Ref after = at(second).after;
  at(first).size += at(second).size & ~kUsed;
  at(first).after = after;
  at(after).before = first;
  at(second).size = 0;
  spare_[spare_count_++] = second;
  TM_WALK(is_valid());
}

}  // namespace tensormem

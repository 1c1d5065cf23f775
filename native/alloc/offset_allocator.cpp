// How it stays fast: what a free meets on its sides and what a class holds is random, so a branch on it is mispredicted
// half the time and costs more than the work it skips. Those choices are made with masks, on a node (kNobody) or a
// class (kNowhere) made for being changed in vain.
#include "alloc/offset_allocator.hpp"

#include <algorithm>
#include <bit>

#include "base/align.hpp"

namespace tensormem {

namespace {

constexpr int kAlignedTries = 8;
constexpr int kClosestTries = 16;

// All ones or zero, in a way that the compiler cannot turn back into a branch.
inline std::uint32_t mask_of(std::uint32_t one_or_zero) {
  std::uint32_t mask = 0U - one_or_zero;
  asm("" : "+r"(mask));
  return mask;
}

// A value the compiler must have by itself. Reading a node's two numbers with one wide load would stall on the two
// narrow stores that have just written them.
inline std::uint64_t by_itself(std::uint64_t value) {
  asm("" : "+r"(value));
  return value;
}

inline std::uint32_t select(std::uint32_t mask, std::uint32_t when_ones, std::uint32_t when_zero) {
  return (when_ones & mask) | (when_zero & ~mask);
}

}  // namespace

// ---- lists of one class -------------------------------------------------------------------------------------------

// Last in, first out: where a newcomer would belong by address nobody could predict; `find` chooses instead.
inline void OffsetAllocator::insert(Ref ref, std::uint64_t size) noexcept {
  const SizeClass of = class_of(size);
  const Slot head = slot_of_head(of);
  const Ref next = link(head);
  at(ref).next = next;
  at(ref).holder = head;
  link(head) = ref;
  at(next).holder = slot_of_next(ref);
  classes_.set(of);
}

inline void OffsetAllocator::unlink(Ref ref) noexcept {
  const Slot holder = at(ref).holder;
  const Ref next = at(ref).next;
  TM_EXPECT(link(holder) == ref);  // for kNobody too: its holder is some slot that nobody is in
  link(holder) = next;
  at(next).holder = holder;
  // A head's slot is negative. It held the only member if nobody is left.
  const std::uint32_t emptied =
      static_cast<std::uint32_t>(next == kNobody) & (static_cast<std::uint32_t>(holder) >> 31);
  classes_.clear_if(select(mask_of(emptied), class_of_head(holder), ClassBitmap::kNowhere), emptied);
}

// ---- searching ----------------------------------------------------------------------------------------------------

inline OffsetAllocator::Candidate OffsetAllocator::lower(Candidate a, Candidate b) {
  return {b.offset < a.offset ? b.ref : a.ref, b.offset < a.offset ? b.offset : a.offset};
}

inline OffsetAllocator::Candidate OffsetAllocator::lower_of_first_two(SizeClass of) const noexcept {
  const Ref first = link(slot_of_head(of));
  const Ref second = at(first).next;
  return lower({first, at(first).offset}, {second, at(second).offset});
}

// The lowest of five: the first of the request's own class, if it fits, and the first two of each of the next two
// classes that have members, which always fit. kNobody stands in wherever there is none, and is the answer if there
// are none at all. With few free ranges this spans a wide choice of sizes, with many it is close to a best fit.
inline OffsetAllocator::Ref OffsetAllocator::find(std::uint64_t need) const noexcept {
  const SizeClass own = class_of(need);
  const Ref exact = link(slot_of_head(own));
  SizeClass base = (own + 1) & ~63U;
  std::uint64_t members = classes_.word_from(own + 1);
  if (members == 0) [[unlikely]] {
    const std::uint32_t word = classes_.next_word(base / 64);
    if (word == ClassBitmap::kEnd) return at(exact).size >= need ? exact : kNobody;
    base = word * 64;
    members = classes_.word(word);
  }
  const auto nearest = base + static_cast<SizeClass>(__builtin_ctzll(members));
  // With no second member this is the first class of the next word: it fits too, or is empty.
  const auto next = base + static_cast<SizeClass>(std::countr_zero(members & (members - 1)));
  const Candidate lowest = lower(lower_of_first_two(nearest), lower_of_first_two(next));
  const bool exact_is_lower = at(exact).size >= need && at(exact).offset < lowest.offset;
  return exact_is_lower ? exact : lowest.ref;
}

// The smallest of the first few of the request's own class or, if none fits, of the next one that has members.
OffsetAllocator::Ref OffsetAllocator::find_closest(std::uint64_t need) const noexcept {
  const auto closest = [&](SizeClass of) {
    Ref best = kNobody;
    Ref each = link(slot_of_head(of));
    for (int tries = 0; tries < kClosestTries && each != kNobody; ++tries, each = at(each).next) {
      if (at(each).size >= need && (best == kNobody || at(each).size < at(best).size)) best = each;
    }
    return best;
  };
  const SizeClass own = class_of(need);
  const Ref exact = closest(own);
  if (exact != kNobody) return exact;
  std::uint32_t word = (own + 1) / 64;
  std::uint64_t members = classes_.word_from(own + 1);
  if (members == 0) {
    word = classes_.next_word(word);
    if (word == ClassBitmap::kEnd) return kNobody;
    members = classes_.word(word);
  }
  return closest(word * 64 + static_cast<SizeClass>(std::countr_zero(members)));
}

// What must be skipped at the start of a range to be aligned.
inline std::uint64_t OffsetAllocator::padding(Ref ref, std::uint64_t alignment) const noexcept {
  return align_up(at(ref).offset, alignment) - at(ref).offset;
}

inline bool OffsetAllocator::fits(Ref ref, std::uint64_t need, std::uint64_t alignment) const noexcept {
  const std::uint64_t skipped = padding(ref, alignment);
  return skipped <= at(ref).size && at(ref).size - skipped >= need;
}

// A few firsts may be aligned by luck. Otherwise one that is larger by the worst padding always fits.
OffsetAllocator::Ref OffsetAllocator::find_aligned(std::uint64_t need, std::uint64_t alignment) const noexcept {
  std::uint32_t word = class_of(need) / 64;
  std::uint64_t members = classes_.word_from(class_of(need));
  for (int tries = 0; tries < kAlignedTries; ++tries, members &= members - 1) {
    if (members == 0) {
      word = classes_.next_word(word);
      if (word == ClassBitmap::kEnd) break;
      members = classes_.word(word);
    }
    const Ref ref = link(slot_of_head(word * 64 + static_cast<SizeClass>(std::countr_zero(members))));
    if (fits(ref, need, alignment)) return ref;
  }
  return need + alignment - 1 <= capacity_ ? find(need + alignment - 1) : kNobody;
}

// The last look before failing: every free range that is large enough, the closest sizes first.
OffsetAllocator::Ref OffsetAllocator::find_anywhere(std::uint64_t need, std::uint64_t alignment) const noexcept {
  std::uint64_t members = classes_.word_from(class_of(need));
  for (std::uint32_t word = class_of(need) / 64; word != ClassBitmap::kEnd; word = classes_.next_word(word)) {
    if (members == 0) members = classes_.word(word);
    for (; members != 0; members &= members - 1) {
      const auto of = word * 64 + static_cast<SizeClass>(std::countr_zero(members));
      for (Ref ref = link(slot_of_head(of)); ref != kNobody; ref = at(ref).next)
        if (fits(ref, need, alignment)) return ref;
    }
  }
  return kNobody;
}

// ---- allocate and deallocate --------------------------------------------------------------------------------------

inline OffsetAllocator::Ref OffsetAllocator::add_node(std::uint64_t offset, std::uint64_t size, Ref before) noexcept {
  TM_ASSERT(spare_count_ > 0);
  const Ref ref = spare_[--spare_count_];
  const Ref after = at(before).after;
  Node& node = at(ref);
  TM_EXPECT(node.size == 0);
  node.offset = offset;
  node.size = size;
  node.before = before;
  node.after = after;
  at(after).before = ref;
  at(before).after = ref;
  return ref;
}

// `ref` is in no list any more. What it has too much of at its end becomes free again.
inline void OffsetAllocator::take(Ref ref, std::uint64_t need, Allocation* out) noexcept {
  Node& node = at(ref);
  const std::uint64_t offset = by_itself(node.offset);
  const std::uint64_t remainder = by_itself(node.size - need);
  const std::uint64_t end = offset + need;
  node.size = need | kUsed;
  *out = {offset << granule_bits_, need << granule_bits_, node_of(ref)};
  if (remainder != 0) [[likely]]
    insert(add_node(end, remainder, ref), remainder);
  node.next = 0;
  node.holder = 0;
  total_free_ -= need;
  if (end > high_water_) [[unlikely]]
    high_water_ = end;
  TM_WALK(is_valid());
}

// Leaves `skipped` granules at the start of `ref` free, and returns the rest, in no list.
OffsetAllocator::Ref OffsetAllocator::skip(Ref ref, std::uint64_t skipped) noexcept {
  unlink(ref);
  if (skipped == 0) return ref;
  const std::uint64_t rest = at(ref).size - skipped;
  at(ref).size = skipped;
  insert(ref, skipped);
  return add_node(at(ref).offset + skipped, rest, ref);
}

Status OffsetAllocator::allocate(std::uint64_t size, std::uint64_t alignment, Allocation* out) noexcept {
  const std::uint64_t mask = granule_mask_;
  const bool usual = (size - 1 < capacity()) & (alignment - 1 <= mask) & ((alignment & (alignment - 1)) == 0);
  if (!(usual & (spare_count_ != 0))) [[unlikely]]
    return allocate_carefully(size, alignment, out);
  const std::uint64_t need = (size + mask) >> granule_bits_;
  const Ref ref = find(need);
  if (ref == kNobody) [[unlikely]]
    return allocate_carefully(size, alignment, out);
  unlink(ref);
  take(ref, need, out);
  return {};
}

Status OffsetAllocator::allocate_closest(std::uint64_t size, std::uint64_t alignment, Allocation* out) noexcept {
  const bool usual = (size - 1 < capacity()) & (alignment - 1 <= granule_mask_) & (spare_count_ != 0);
  const std::uint64_t need = (size + granule_mask_) >> granule_bits_;
  const Ref ref = usual ? find_closest(need) : kNobody;
  if (ref == kNobody) return allocate_carefully(size, alignment, out);
  unlink(ref);
  take(ref, need, out);
  return {};
}

Status OffsetAllocator::allocate_carefully(std::uint64_t size, std::uint64_t alignment, Allocation* out) noexcept {
  if (size == 0 || size > kNoOverflowLimit)
    return Status::fail(Code::invalid_size, "size is 0 or cannot be added", size);
  if (!is_power_of_two(alignment)) return Status::fail(Code::invalid_alignment, "not a power of two", alignment);
  if (size > total_free()) return refuse(size);
  TM_TRY(ensure_storage(capacity_, 2));
  const std::uint64_t need = (size + granule_mask_) >> granule_bits_;
  const std::uint64_t units = std::max<std::uint64_t>(alignment >> granule_bits_, 1);
  Ref ref = units == 1 ? find(need) : find_aligned(need, units);
  if (ref == kNobody) ref = find_anywhere(need, units);
  if (ref == kNobody) return refuse(size);
  take(skip(ref, padding(ref, units)), need, out);
  return {};
}

Status OffsetAllocator::refuse(std::uint64_t size) const noexcept {
  return Status::fail(Code::out_of_memory, "no free range is large enough", size, total_free(), largest_free());
}

Status OffsetAllocator::deallocate(std::uint32_t node) noexcept {
  if (!is_live(node)) [[unlikely]]
    return Status::fail(Code::invalid_argument, "no live range has this node", node);
  Ref ref = ref_of(node);
  std::uint64_t size = at(ref).size & ~kUsed;
  total_free_ += size;
  const Ref before = at(ref).before;
  Ref after = at(ref).after;

  // After: by masks. kNobody has size 0 and may be unlinked from itself.
  const std::uint32_t merge = mask_of(static_cast<std::uint32_t>(at(after).size >> 63) ^ 1U);
  const Ref absorbed = select(merge, after, kNobody);
  unlink(absorbed);
  size += at(absorbed).size;
  at(absorbed).size = 0;
  spare_[spare_count_] = after;
  spare_count_ -= merge;
  after = select(merge, at(after).after, after);

  if (at(before).size < kUsed) {
    unlink(before);
    size += at(before).size;
    at(ref).size = 0;
    spare_[spare_count_++] = ref;
    ref = before;
  }
  at(ref).size = size;
  at(ref).after = after;
  at(after).before = ref;
  insert(ref, size);
  TM_WALK(is_valid());
  return {};
}

// ---- the end of the space -----------------------------------------------------------------------------------------

void OffsetAllocator::extend(std::uint64_t units) noexcept {
  if (units == 0) return;
  Ref last = at(kEdge).before;
  if (at(last).size < kUsed) {
    unlink(last);
    at(last).size += units;
  } else {
    last = add_node(capacity_, units, last);
  }
  insert(last, at(last).size);
  capacity_ += units;
  total_free_ += units;
  at(kEdge).offset = capacity_;
}

void OffsetAllocator::cut(std::uint64_t units) noexcept {
  if (units == 0) return;
  const Ref last = at(kEdge).before;
  TM_ASSERT(at(last).size < kUsed && at(last).size >= units);
  unlink(last);
  at(last).size -= units;
  if (at(last).size != 0) {
    insert(last, at(last).size);
  } else {
    at(at(last).before).after = kEdge;
    at(kEdge).before = at(last).before;
    spare_[spare_count_++] = last;
  }
  capacity_ -= units;
  total_free_ -= units;
  at(kEdge).offset = capacity_;
}

// ---- spans --------------------------------------------------------------------------------------------------------

Status OffsetAllocator::add_span(std::uint64_t offset, std::uint64_t size, std::uint32_t next,
                                 std::uint32_t* span) noexcept {
  if (size == 0 || size > kNoOverflowLimit - offset || !is_aligned(offset | size, granule()))
    return Status::fail(Code::invalid_size, "a span is not empty, and begins and ends at multiples of the granule",
                        size);
  const std::uint64_t units = size >> granule_bits_;
  TM_TRY(ensure_storage(capacity_ + units, 2));
  const Ref following = next == kNoNode ? kEdge : ref_of(next);
  TM_ASSERT(is_wall(following));
  const Ref wall = add_node(offset >> granule_bits_, kUsed, at(following).before);
  at(wall).next = kNobody;
  at(wall).holder = 0;
  const Ref room = add_node(offset >> granule_bits_, units, wall);
  insert(room, units);
  capacity_ += units;
  total_free_ += units;
  ++span_count_;
  *span = node_of(wall);
  TM_WALK(is_valid());
  return {};
}

Status OffsetAllocator::extend_span(std::uint64_t offset, std::uint64_t size, std::uint32_t next,
                                    Allocation* out) noexcept {
  if (size == 0 || size > kNoOverflowLimit - offset || !is_aligned(offset | size, granule()))
    return Status::fail(Code::invalid_size, "a span is not empty, and begins and ends at multiples of the granule",
                        size);
  const std::uint64_t units = size >> granule_bits_;
  TM_TRY(ensure_storage(capacity_ + units, 1));
  const Ref last = at(next == kNoNode ? kEdge : ref_of(next)).before;
  TM_ASSERT(at(last).offset + (at(last).size & ~kUsed) == offset >> granule_bits_);
  const Ref added = add_node(offset >> granule_bits_, units | kUsed, last);
  at(added).next = 0;
  at(added).holder = 0;
  capacity_ += units;
  high_water_ = std::max(high_water_, at(added).offset + units);
  *out = {offset, size, node_of(added)};
  TM_WALK(is_valid());
  return {};
}

bool OffsetAllocator::span_is_free(std::uint32_t span) const noexcept {
  const Node& first = at(at(ref_of(span)).after);
  return first.size < kUsed && is_wall(first.after);
}

void OffsetAllocator::remove_span(std::uint32_t span) noexcept {
  TM_ASSERT(span_is_free(span));
  const Ref wall = ref_of(span);
  const Ref room = at(wall).after;
  const Ref before = at(wall).before;
  const Ref after = at(room).after;
  unlink(room);
  capacity_ -= at(room).size;
  total_free_ -= at(room).size;
  at(before).after = after;
  at(after).before = before;
  for (const Ref gone : {wall, room}) {
    at(gone).size = 0;
    spare_[spare_count_++] = gone;
  }
  --span_count_;
  TM_WALK(is_valid());
}

void OffsetAllocator::take_span(std::uint32_t span, Allocation* out) noexcept {
  TM_ASSERT(span_is_free(span));
  const Ref room = at(ref_of(span)).after;
  unlink(room);
  take(room, at(room).size, out);
}

bool OffsetAllocator::is_alone(std::uint32_t node, std::uint64_t* rest) const noexcept {
  const Node& range = live(node);
  Ref before = range.before;
  Ref after = range.after;
  *rest = 0;
  if (at(before).size < kUsed) {
    *rest += at(before).size << granule_bits_;
    before = at(before).before;
  }
  if (at(after).size < kUsed) {
    *rest += at(after).size << granule_bits_;
    after = at(after).after;
  }
  return is_wall(before) && is_wall(after);
}

}  // namespace tensormem

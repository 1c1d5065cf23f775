// Owns: which ranges of an abstract space [0, capacity) are taken. It never touches what the space stands for, so it
// serves host memory, device memory and bare addresses alike.
// Two-level segregated fit: constant time, neighbours coalesce at once, ranges are rounded to the granule and to
// nothing else. Among the closest fits it takes the lowest address, which packs tighter than a best fit.
// A space is either [0, capacity), or made of spans that lie anywhere and are added and removed one by one: ranges of
// two spans never become one, and a search looks at all of them at once.
// Must not know: threads (the owner locks), streams, generations, what lies at an offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "alloc/size_class.hpp"
#include "base/status.hpp"

namespace tensormem {

inline constexpr std::uint32_t kNoNode = ~0U;

struct Allocation {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;        // the request, rounded up to the granule
  std::uint32_t node = kNoNode;  // names the range until it is deallocated; dense, so it may index an array
};

class OffsetAllocator {
 public:
  static constexpr std::uint64_t kDefaultGranule = 16;

  OffsetAllocator() = default;
  OffsetAllocator(const OffsetAllocator&) = delete;
  OffsetAllocator& operator=(const OffsetAllocator&) = delete;

  // Begins an empty space; whatever was handed out before is forgotten. The capacity is rounded down to whole granules.
  // Before this, the space has no capacity. Refuses a granule that is not a power of two (invalid_alignment) and a
  // capacity above 2^63 - 1 (invalid_size).
  Status open(std::uint64_t capacity, std::uint64_t granule = kDefaultGranule) noexcept;

  // Offsets are multiples of `alignment`, any power of two. Fails with out_of_memory only when no free range can hold
  // the request; that failure alone may look at many ranges.
  Status allocate(std::uint64_t size, std::uint64_t alignment, Allocation* out) noexcept;
  // The same, of the smallest range that fits, as far as a few looks can tell: what is cut off is least.
  Status allocate_closest(std::uint64_t size, std::uint64_t alignment, Allocation* out) noexcept;
  // A node that is not live, or never was, is refused with invalid_argument (fact: the node) and nothing changes.
  Status deallocate(std::uint32_t node) noexcept;

  // Adds free room at the end. A space that was never opened is opened.
  Status grow(std::uint64_t capacity) noexcept;
  // Gives up the end of the space. If a live range is in the way: invalid_size (facts: the capacity asked for, and the
  // smallest that is possible now).
  Status shrink(std::uint64_t capacity) noexcept;
  void reset() noexcept;

  // ---- spans: instead of `grow` and `shrink`, of a space that was opened with no capacity ----
  // Adds the free room [offset, offset + size), multiples of the granule that no span has; `next` is the span that
  // follows it, or kNoNode. `*span` names it until it is removed.
  Status add_span(std::uint64_t offset, std::uint64_t size, std::uint32_t next, std::uint32_t* span) noexcept;
  // The same for room that begins where the span before `next` ends: it becomes part of that, and begins as taken.
  Status extend_span(std::uint64_t offset, std::uint64_t size, std::uint32_t next, Allocation* out) noexcept;
  // Nothing of it is live.
  bool span_is_free(std::uint32_t span) const noexcept;
  // The following two ask for a span that is free.
  void remove_span(std::uint32_t span) noexcept;
  void take_span(std::uint32_t span, Allocation* out) noexcept;
  // Whether nothing else of its span is live; `*rest` is what is free beside it.
  bool is_alone(std::uint32_t node, std::uint64_t* rest) const noexcept;

  std::uint64_t capacity() const noexcept { return capacity_ << granule_bits_; }
  std::uint64_t granule() const noexcept { return granule_mask_ + 1; }
  std::uint64_t total_free() const noexcept { return total_free_ << granule_bits_; }
  std::uint64_t used() const noexcept { return (capacity_ - total_free_) << granule_bits_; }
  // The highest end of any range since `open` or `reset`.
  std::uint64_t high_water() const noexcept { return high_water_ << granule_bits_; }
  // Exact. Looks through the topmost class only.
  std::uint64_t largest_free() const noexcept;
  // Free bytes at the very end: what `shrink` could give up.
  std::uint64_t trailing_free() const noexcept;
  // 1 - largest / total; 0 when nothing is free.
  double fragmentation() const noexcept;

  bool is_live(std::uint32_t node) const noexcept { return node < node_count_ && at(ref_of(node)).size > kUsed; }
  // The following four ask for a live node.
  std::uint64_t offset(std::uint32_t node) const noexcept { return live(node).offset << granule_bits_; }
  std::uint64_t size(std::uint32_t node) const noexcept { return (live(node).size & ~kUsed) << granule_bits_; }
  // A number of the owner's, kept with the range while it is live; 0 at first. A place for a generation.
  std::uint64_t user(std::uint32_t node) const noexcept {
    const Node& of = live(node);
    return of.next | static_cast<std::uint64_t>(static_cast<std::uint32_t>(of.holder)) << 32;
  }
  void set_user(std::uint32_t node, std::uint64_t value) noexcept {
    TM_ASSERT(is_live(node));
    at(ref_of(node)).next = static_cast<Ref>(value);
    at(ref_of(node)).holder = static_cast<Slot>(value >> 32);
  }

  // The live range that touches a live one on its left or right; kNoNode where that is free, or the space ends.
  std::uint32_t live_before(std::uint32_t node) const noexcept { return live_node(live(node).before); }
  std::uint32_t live_after(std::uint32_t node) const noexcept { return live_node(live(node).after); }
  // Cuts a live range in two live ones: `node` keeps the first `size` bytes, a multiple of the granule and less than it
  // has; `*rest` names what is left, with user 0.
  Status split(std::uint32_t node, std::uint64_t size, std::uint32_t* rest) noexcept;
  // Adds the live range right after `node` to it; that one's node is gone, its user forgotten.
  void merge(std::uint32_t node) noexcept;

  // Every range in the order of addresses: f(offset, size, is_free, node). `f` must not change the allocator.
  template <typename F>
  void for_each(F&& f) const {
    if (nodes_ == nullptr) return;
    for (Ref ref = at(kEdge).after; ref != kEdge; ref = at(ref).after) {
      const Node& each = at(ref);
      if (is_wall(ref)) continue;
      f(each.offset << granule_bits_, (each.size & ~kUsed) << granule_bits_, each.size < kUsed, node_of(ref));
    }
  }

  bool is_valid() const;

 private:
  // Nodes are named by their distance from `nodes_` in words of eight bytes, which addresses them in one instruction.
  // The slots of links (heads of classes below `nodes_`, `next` fields above) are named in words of four bytes.
  using Ref = std::uint32_t;
  using Slot = std::int32_t;

  struct Node {
    std::uint64_t offset;  // in granules, as all sizes inside
    std::uint64_t size;    // kUsed is set when live; 0 when the node itself is unused
    Ref before;            // neighbours in the space
    Ref after;
    Ref next;     // in its class, when free; the user's number, when live
    Slot holder;  // the slot that points here, when free
  };
  static_assert(sizeof(Node) == 32);

  static constexpr std::uint64_t kUsed = 1ULL << 63;
  static constexpr std::uint64_t kBeyond = ~0ULL;  // above every offset
  static constexpr Ref kStride = sizeof(Node) / 8;
  static constexpr Ref kNobody = 0;      // ends every list; lies beyond every offset, fits nothing
  static constexpr Ref kEdge = kStride;  // a live node of size 0 on both ends of the space
  static constexpr Ref kFirst = 2 * kStride;
  static constexpr std::uint32_t kMaxNodes = 1U << 27;

  static constexpr std::size_t kLine = 64;
  struct Free {
    void operator()(void* pointer) const noexcept { ::operator delete(pointer, std::align_val_t{kLine}); }
  };
  struct Candidate {
    Ref ref;
    std::uint64_t offset;
  };

  static constexpr Ref ref_of(std::uint32_t node) { return kFirst + node * kStride; }
  static constexpr std::uint32_t node_of(Ref ref) { return (ref - kFirst) / kStride; }
  static constexpr Slot slot_of_next(Ref ref) { return static_cast<Slot>(ref * 2 + 6); }
  static constexpr Slot slot_of_head(SizeClass of) { return ~static_cast<Slot>(of); }
  static constexpr SizeClass class_of_head(Slot slot) { return ~static_cast<SizeClass>(slot); }

  Node& at(Ref ref) noexcept { return *reinterpret_cast<Node*>(nodes_ + ref); }
  const Node& at(Ref ref) const noexcept { return *reinterpret_cast<const Node*>(nodes_ + ref); }
  Ref& link(Slot slot) noexcept { return reinterpret_cast<Ref*>(nodes_)[slot]; }
  Ref link(Slot slot) const noexcept { return reinterpret_cast<const Ref*>(nodes_)[slot]; }
  const Node& live(std::uint32_t node) const noexcept {
    TM_ASSERT(is_live(node));
    return at(ref_of(node));
  }

  std::uint32_t live_node(Ref ref) const noexcept { return at(ref).size > kUsed ? node_of(ref) : kNoNode; }
  // A live node of size 0: where a span begins, or the edge. It keeps the ranges of two spans apart.
  bool is_wall(Ref ref) const noexcept { return at(ref).size == kUsed; }
  void insert(Ref ref, std::uint64_t size) noexcept;
  void unlink(Ref ref) noexcept;
  static Candidate lower(Candidate a, Candidate b);
  Candidate lower_of_first_two(SizeClass of) const noexcept;
  std::uint64_t padding(Ref ref, std::uint64_t alignment) const noexcept;
  bool fits(Ref ref, std::uint64_t need, std::uint64_t alignment) const noexcept;
  Ref find(std::uint64_t need) const noexcept;
  Ref find_closest(std::uint64_t need) const noexcept;
  Ref find_aligned(std::uint64_t need, std::uint64_t alignment) const noexcept;
  Ref find_anywhere(std::uint64_t need, std::uint64_t alignment) const noexcept;
  Ref skip(Ref ref, std::uint64_t skipped) noexcept;
  void take(Ref ref, std::uint64_t need, Allocation* out) noexcept;
  Ref add_node(std::uint64_t offset, std::uint64_t size, Ref before) noexcept;
  void extend(std::uint64_t units) noexcept;
  void cut(std::uint64_t units) noexcept;

  Status allocate_carefully(std::uint64_t size, std::uint64_t alignment, Allocation* out) noexcept;
  Status refuse(std::uint64_t size) const noexcept;
  // Heads for every class up to `capacity` granules, and `spare` unused nodes. On failure nothing has changed.
  Status ensure_storage(std::uint64_t capacity, std::uint32_t spare) noexcept;
  bool replace_storage(std::uint32_t heads, std::uint32_t nodes) noexcept;

  bool space_is_valid(std::uint64_t* free_nodes, std::uint64_t* live_nodes) const;
  bool classes_are_valid(std::uint64_t free_nodes) const;

  std::uint64_t* nodes_ = nullptr;  // into `storage_`, above the heads
  std::uint32_t* spare_ = nullptr;  // a stack of unused nodes
  std::uint32_t spare_count_ = 0;
  std::uint32_t granule_bits_ = std::countr_zero(kDefaultGranule);
  std::uint64_t granule_mask_ = kDefaultGranule - 1;
  std::uint64_t capacity_ = 0;
  std::uint64_t total_free_ = 0;
  std::uint64_t high_water_ = 0;
  ClassBitmap classes_;

  std::uint32_t node_count_ = 0;
  std::uint32_t head_count_ = 0;
  std::uint32_t span_count_ = 0;
  std::unique_ptr<void, Free> storage_;
};

}  // namespace tensormem

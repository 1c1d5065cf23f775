// The extent of an OffsetAllocator: opening, growing and shrinking, the storage of its nodes, what it tells about
// itself, and the walk that proves it. Nothing here is on the hot path.
#include <algorithm>
#include <cstring>

#include "alloc/offset_allocator.hpp"
#include "base/align.hpp"

namespace tensormem {

namespace {

constexpr std::uint32_t kFirstNodes = 64;

}  // namespace

Status OffsetAllocator::open(std::uint64_t capacity, std::uint64_t granule) noexcept {
  if (!is_power_of_two(granule))
    return Status::fail(Code::invalid_alignment, "the granule is no power of two", granule);
  if (capacity > kNoOverflowLimit) return Status::fail(Code::invalid_size, "the capacity cannot be added", capacity);
  const auto bits = static_cast<std::uint32_t>(std::countr_zero(granule));
  TM_TRY(ensure_storage(capacity >> bits, 1));
  granule_bits_ = bits;
  granule_mask_ = granule - 1;
  capacity_ = capacity >> bits;
  reset();
  return {};
}

void OffsetAllocator::reset() noexcept {
  if (nodes_ == nullptr) return;
  const std::uint64_t capacity = capacity_;
  std::fill(&link(slot_of_head(head_count_ - 1)), &link(slot_of_head(0)) + 1, kNobody);
  at(kNobody) = {kBeyond, 0, kNobody, kNobody, kNobody, slot_of_next(kNobody)};
  at(kEdge) = {0, kUsed, kEdge, kEdge, kNobody, 0};
  classes_ = ClassBitmap();
  capacity_ = total_free_ = high_water_ = 0;
  spare_count_ = span_count_ = 0;
  for (std::uint32_t node = node_count_; node-- > 0;) {
    at(ref_of(node)).size = 0;
    spare_[spare_count_++] = ref_of(node);
  }
  extend(capacity);
  TM_WALK(is_valid());
}

Status OffsetAllocator::grow(std::uint64_t capacity) noexcept {
  TM_ASSERT(span_count_ == 0);
  if (nodes_ == nullptr) return open(capacity, granule());
  if (capacity < this->capacity() || capacity > kNoOverflowLimit) {
    return Status::fail(Code::invalid_size, "a space grows to no less than it has, and below 2^63", capacity,
                        this->capacity());
  }
  const std::uint64_t units = capacity >> granule_bits_;
  TM_TRY(ensure_storage(units, 1));
  extend(units - capacity_);
  TM_WALK(is_valid());
  return {};
}

Status OffsetAllocator::shrink(std::uint64_t capacity) noexcept {
  TM_ASSERT(span_count_ == 0);
  if (capacity > this->capacity()) {
    return Status::fail(Code::invalid_size, "a space shrinks to no more than it has", capacity, this->capacity());
  }
  const std::uint64_t units = capacity >> granule_bits_;
  const std::uint64_t smallest = this->capacity() - trailing_free();
  if ((units << granule_bits_) < smallest) {
    return Status::fail(Code::invalid_size, "a live range is in the way of shrinking", capacity, smallest);
  }
  cut(capacity_ - units);
  TM_WALK(nodes_ == nullptr || is_valid());
  return {};
}

std::uint64_t OffsetAllocator::largest_free() const noexcept {
  SizeClass top = 0;
  if (!classes_.highest(&top)) return 0;
  std::uint64_t largest = 0;
  for (Ref ref = link(slot_of_head(top)); ref != kNobody; ref = at(ref).next) largest = std::max(largest, at(ref).size);
  return largest << granule_bits_;
}

std::uint64_t OffsetAllocator::trailing_free() const noexcept {
  if (nodes_ == nullptr) return 0;
  const Node& last = at(at(kEdge).before);
  return last.size < kUsed ? last.size << granule_bits_ : 0;
}

double OffsetAllocator::fragmentation() const noexcept {
  if (total_free_ == 0) return 0.0;
  return 1.0 - static_cast<double>(largest_free()) / static_cast<double>(total_free());
}

// ---- storage: heads, then nodes, then the stack of spare nodes ------------------------------------------------------

Status OffsetAllocator::ensure_storage(std::uint64_t capacity, std::uint32_t spare) noexcept {
  // A search may look one word of classes past the last.
  const std::uint32_t heads = std::max(head_count_, (class_of(capacity) / 64 + 2) * 64);
  std::uint32_t nodes = std::max(node_count_, kFirstNodes);
  if (node_count_ != 0 && spare_count_ < spare) nodes *= 2;
  if (heads == head_count_ && nodes == node_count_) return {};
  if (nodes > kMaxNodes || !replace_storage(heads, nodes)) {
    return Status::fail(Code::out_of_memory, "no memory to describe another range",
                        (nodes - node_count_) * sizeof(Node), total_free(), largest_free());
  }
  return {};
}

bool OffsetAllocator::replace_storage(std::uint32_t heads, std::uint32_t nodes) noexcept {
  const std::size_t head_bytes = heads * sizeof(Ref);  // a multiple of the line, as heads come by 64
  const std::size_t node_bytes = (kFirst / kStride + nodes) * sizeof(Node);
  const std::size_t spare_bytes = (nodes + 1) * sizeof(Ref);  // one more: `deallocate` writes before it counts
  std::unique_ptr<void, Free> fresh(
      ::operator new(head_bytes + node_bytes + spare_bytes, std::align_val_t{kLine}, std::nothrow));
  if (fresh == nullptr) return false;
  auto* start = static_cast<unsigned char*>(fresh.get());
  std::memset(start, 0, head_bytes + node_bytes);  // kNobody is 0, and so is the size of an unused node
  auto* spares = reinterpret_cast<std::uint32_t*>(start + head_bytes + node_bytes);
  std::uint32_t spare_count = 0;
  for (std::uint32_t node = nodes; node-- > node_count_;) spares[spare_count++] = ref_of(node);
  if (nodes_ != nullptr) {
    const std::size_t old_heads = head_count_ * sizeof(Ref);
    const std::size_t old_nodes = (kFirst / kStride + node_count_) * sizeof(Node);
    std::memcpy(start + head_bytes - old_heads, storage_.get(), old_heads + old_nodes);
    std::memcpy(spares + spare_count, spare_, spare_count_ * sizeof(Ref));
  }
  nodes_ = reinterpret_cast<std::uint64_t*>(start + head_bytes);
  spare_ = spares;
  spare_count_ += spare_count;
  node_count_ = nodes;
  head_count_ = heads;
  storage_ = std::move(fresh);
  return true;
}

// ---- proof --------------------------------------------------------------------------------------------------------

bool OffsetAllocator::is_valid() const {
  if (nodes_ == nullptr) return capacity_ == 0 && total_free_ == 0;
  std::uint64_t free_nodes = 0;
  std::uint64_t live_nodes = 0;
  if (!space_is_valid(&free_nodes, &live_nodes) || !classes_are_valid(free_nodes)) return false;
  for (std::uint32_t i = 0; i < spare_count_; ++i) {
    if (at(spare_[i]).size != 0) return false;
  }
  const Node& nobody = at(kNobody);
  return free_nodes + live_nodes + span_count_ + spare_count_ == node_count_ && nobody.offset == kBeyond &&
         nobody.size == 0 && nobody.next == kNobody && link(nobody.holder) == kNobody;
}

// Ranges cover the space without gap or overlap, know their neighbours, and no two free ones touch.
bool OffsetAllocator::space_is_valid(std::uint64_t* free_nodes, std::uint64_t* live_nodes) const {
  std::uint64_t end = 0;
  std::uint64_t live_end = 0;
  std::uint64_t free_units = 0;
  std::uint64_t units = 0;
  std::uint32_t spans = 0;
  bool before_is_free = false;
  Ref before = kEdge;
  for (Ref ref = at(kEdge).after; ref != kEdge; before = ref, ref = at(ref).after) {
    const Node& each = at(ref);
    const bool is_free = each.size < kUsed;
    if (is_wall(ref)) {  // the spans are in order and do not overlap
      if (each.offset < end || each.before != before || is_wall(each.after)) return false;
      end = each.offset;
      before_is_free = false;
      ++spans;
      continue;
    }
    if (each.offset != end || each.before != before || (each.size & ~kUsed) == 0) return false;
    if (is_free && (before_is_free || link(each.holder) != ref)) return false;
    end += each.size & ~kUsed;
    units += each.size & ~kUsed;
    if (is_free) free_units += each.size;
    if (!is_free) live_end = end;
    ++*(is_free ? free_nodes : live_nodes);
    before_is_free = is_free;
  }
  const bool whole = spans != 0 || (at(kEdge).offset == capacity_ && end == capacity_);
  return whole && at(kEdge).before == before && at(kEdge).size == kUsed && units == capacity_ && spans == span_count_ &&
         free_units == total_free_ && live_end <= high_water_;
}

// Every free range is in the list of its class, and the bitmap has exactly the classes that are not empty.
bool OffsetAllocator::classes_are_valid(std::uint64_t free_nodes) const {
  if (!classes_.is_valid()) return false;
  std::uint64_t members = 0;
  for (SizeClass of = 0; of < head_count_; ++of) {
    const Ref first = link(slot_of_head(of));
    if (classes_.test(of) != (first != kNobody)) return false;
    Slot holder = slot_of_head(of);
    for (Ref ref = first; ref != kNobody; holder = slot_of_next(ref), ref = at(ref).next) {
      if (at(ref).holder != holder || at(ref).size >= kUsed || class_of(at(ref).size) != of) return false;
      if (++members > free_nodes) return false;
    }
  }
  return members == free_nodes;
}

}  // namespace tensormem

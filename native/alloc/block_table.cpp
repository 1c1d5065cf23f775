#include "alloc/block_table.hpp"

#include <bit>
#include <new>
#include <utility>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

// Spreads addresses, whose low bits are mostly zero, over the high bits (Fibonacci hashing).
constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15ULL;

}  // namespace

Status BlockTable::insert(const BlockEntry& entry) {
  TM_ASSERT(entry.address != 0);
  // At most five eighths full: probes stay short.
  if ((size_ + 1) * 8 > capacity_ * 5) TM_TRY(grow());
  const std::size_t place = place_of(entry.address);
  if (entries_[place].address != 0)
    return Status::fail(Code::foreign_block, "the source of memory handed out an address that is still in use",
                        entries_[place].generation, entry.address);
  entries_[place] = entry;
  ++size_;
  return {};
}

const BlockEntry* BlockTable::find(std::uint64_t address) const {
  if (capacity_ == 0 || address == 0) return nullptr;
  const BlockEntry& entry = entries_[place_of(address)];
  return entry.address == 0 ? nullptr : &entry;
}

Status BlockTable::check(std::uint64_t address, std::uint64_t generation, bool ours) const {
  const BlockEntry* entry = find(address);
  if (entry != nullptr && entry->generation == generation) [[likely]]
    return {};
  if (!ours) return Status::fail(Code::foreign_block, "another resource made this block", generation, address);
  return Status::fail(Code::use_after_free, "the block was given back before", generation, address);
}

void BlockTable::erase(std::uint64_t address) {
  std::size_t hole = place_of(address);
  TM_ASSERT(entries_[hole].address == address);
  const std::size_t mask = capacity_ - 1;
  // Pull back every entry behind the hole that may stand there, so that no probe ends too early.
  for (std::size_t next = (hole + 1) & mask; entries_[next].address != 0; next = (next + 1) & mask) {
    const std::size_t wanted = home(entries_[next].address);
    if (((next - wanted) & mask) < ((next - hole) & mask)) continue;
    entries_[hole] = entries_[next];
    hole = next;
  }
  entries_[hole] = BlockEntry{};
  --size_;
}

void BlockTable::clear() {
  entries_.reset();
  capacity_ = 0;
  size_ = 0;
  shift_ = 64;
}

bool BlockTable::is_valid() const {
  std::size_t found = 0;
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (entries_[i].address == 0) continue;
    ++found;
    if (place_of(entries_[i].address) != i) return false;
  }
  return found == size_;
}

std::size_t BlockTable::home(std::uint64_t address) const {
  return static_cast<std::size_t>((address * kSpread) >> shift_);
}

// Where the address is, or the empty place where it would go.
std::size_t BlockTable::place_of(std::uint64_t address) const {
  const std::size_t mask = capacity_ - 1;
  std::size_t place = home(address);
  while (entries_[place].address != 0 && entries_[place].address != address) place = (place + 1) & mask;
  return place;
}

Status BlockTable::grow() {
  const std::size_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
  std::unique_ptr<BlockEntry[]> bigger(new (std::nothrow) BlockEntry[capacity]);
  if (bigger == nullptr)
    return Status::fail(Code::out_of_memory, "no memory for the table of blocks", capacity * sizeof(BlockEntry));
  std::swap(entries_, bigger);
  const std::size_t old_capacity = std::exchange(capacity_, capacity);
  shift_ = 64 - std::countr_zero(capacity);
  for (std::size_t i = 0; i < old_capacity; ++i)
    if (bigger[i].address != 0) entries_[place_of(bigger[i].address)] = bigger[i];
  return {};
}

}  // namespace tensormem

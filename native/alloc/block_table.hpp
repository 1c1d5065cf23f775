// Owns: address -> (generation, size, state), for resources that know their blocks by address. Open addressing with
// linear probing and deletion by shifting back, so there are no tombstones and a lookup stays flat at a million live
// blocks. Catches stale, double and foreign frees. Must not know: the memory behind the addresses. Guarded by the
// owner's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "alloc/block.hpp"
#include "base/status.hpp"

namespace tensormem {

struct BlockEntry {
  std::uint64_t address = 0;  // 0: an empty place
  std::uint64_t nbytes = 0;
  std::uint64_t generation = 0;
  std::uint64_t stream = 0;
  void* uses = nullptr;  // the owner's record of who used it
  std::uint32_t tag = 0;
  std::uint8_t alignment_log2 = 0;
  BlockState state = BlockState::live;
  bool zeroed = false;  // it was taken from its source as zeros
};

class BlockTable {
 public:
  // An address that is in the table already is a bug of the source of addresses: refused, nothing changes.
  Status insert(const BlockEntry& entry);
  BlockEntry* find(std::uint64_t address) { return const_cast<BlockEntry*>(std::as_const(*this).find(address)); }
  const BlockEntry* find(std::uint64_t address) const;
  // Whether the block of that generation is still here. `ours`: this table's owner made the block.
  Status check(std::uint64_t address, std::uint64_t generation, bool ours) const;
  // The address must be in the table.
  void erase(std::uint64_t address);
  void clear();

  std::size_t size() const { return size_; }
  bool is_valid() const;

  template <typename Visit>
  void for_each(Visit visit) {
    for (std::size_t i = 0; i < capacity_; ++i)
      if (entries_[i].address != 0) visit(entries_[i]);
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < capacity_; ++i)
      if (entries_[i].address != 0) visit(static_cast<const BlockEntry&>(entries_[i]));
  }

 private:
  static constexpr std::size_t kFirstCapacity = 64;

  std::size_t home(std::uint64_t address) const;
  std::size_t place_of(std::uint64_t address) const;
  Status grow();

  std::unique_ptr<BlockEntry[]> entries_;
  std::size_t capacity_ = 0;  // 0 or a power of two
  std::size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace tensormem

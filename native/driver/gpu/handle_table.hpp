// Owns: numbers for handles that a vendor gave: a slot and a serial, so that a stale or made-up number is refused and
// never followed. Asking whether a number is alive takes no lock.
// Must not know: what the handles are.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/spinlock.hpp"

namespace tensormem::gpu {

template <typename Item>
class HandleTable {
 public:
  // 0 when there is no room.
  std::uint64_t add(const Item& item) noexcept {
    const std::lock_guard lock(lock_);
    if (first_free_ == kNone && !add_chunk()) return 0;
    const std::uint32_t number = first_free_;
    Slot& slot = *at(number);
    first_free_ = slot.next_free;
    slot.item = item;
    const std::uint32_t serial = slot.next_serial++;
    if (slot.next_serial == 0) slot.next_serial = 1;
    slot.serial.store(serial, std::memory_order_release);
    ++count_;
    return static_cast<std::uint64_t>(serial) << 32 | (number + 1);
  }

  bool get(std::uint64_t handle, Item* item) const noexcept {
    const std::lock_guard lock(lock_);
    const Slot* slot = find(handle);
    if (slot == nullptr) return false;
    *item = slot->item;
    return true;
  }

  // Puts `*item` in the place of what a number stands for, which it becomes.
  bool exchange(std::uint64_t handle, Item* item) noexcept {
    const std::lock_guard lock(lock_);
    Slot* slot = const_cast<Slot*>(find(handle));
    if (slot == nullptr) return false;
    std::swap(slot->item, *item);
    return true;
  }

  bool remove(std::uint64_t handle) noexcept {
    const std::lock_guard lock(lock_);
    Slot* slot = const_cast<Slot*>(find(handle));
    if (slot == nullptr) return false;
    slot->serial.store(0, std::memory_order_release);
    slot->next_free = first_free_;
    first_free_ = static_cast<std::uint32_t>(handle) - 1;
    --count_;
    return true;
  }

  bool contains(std::uint64_t handle) const noexcept { return find(handle) != nullptr; }

  // What all numbers stand for at this moment; as many as there is memory to say.
  std::vector<Item> items() const noexcept {
    std::vector<Item> found;
    try {
      found.reserve(count());
    } catch (const std::bad_alloc&) {
    }
    const std::lock_guard lock(lock_);
    for (std::uint32_t number = 0; number < chunk_count_ * kChunk && found.size() < found.capacity(); ++number) {
      if (at(number)->serial.load(std::memory_order_relaxed) != 0) found.push_back(at(number)->item);
    }
    return found;
  }

  std::uint32_t count() const noexcept {
    const std::lock_guard lock(lock_);
    return count_;
  }

 private:
  static constexpr std::uint32_t kChunk = 256;
  static constexpr std::uint32_t kChunks = 1024;
  static constexpr std::uint32_t kNone = ~0U;
  struct Slot {
    std::atomic<std::uint32_t> serial{0};  // 0: free
    std::uint32_t next_serial = 1;
    std::uint32_t next_free = kNone;
    Item item{};
  };

  Slot* at(std::uint32_t number) const noexcept {
    return chunks_[number / kChunk].load(std::memory_order_acquire) + number % kChunk;
  }
  const Slot* find(std::uint64_t handle) const noexcept {
    const std::uint32_t number = static_cast<std::uint32_t>(handle) - 1;
    const auto serial = static_cast<std::uint32_t>(handle >> 32);
    if (serial == 0 || number >= kChunk * kChunks) return nullptr;
    const Slot* const chunk = chunks_[number / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Slot& slot = chunk[number % kChunk];
    return slot.serial.load(std::memory_order_acquire) == serial ? &slot : nullptr;
  }
  bool add_chunk() noexcept {
    if (chunk_count_ == kChunks) return false;
    Slot* const chunk = new (std::nothrow) Slot[kChunk];
    if (chunk == nullptr) return false;
    const std::uint32_t first = chunk_count_ * kChunk;
    for (std::uint32_t i = 0; i + 1 < kChunk; ++i) chunk[i].next_free = first + i + 1;
    first_free_ = first;
    chunks_[chunk_count_++].store(chunk, std::memory_order_release);
    return true;
  }

  mutable Spinlock lock_;
  std::uint32_t first_free_ = kNone;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t count_ = 0;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
};

}  // namespace tensormem::gpu

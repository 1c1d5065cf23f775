// Owns: the bytes of one guarded block: the guards on both sides of it, to the byte, and the poison inside it; painting
// them and finding where they are damaged. Memory that the processor can reach is read in place, other memory through
// copies of the driver's.
// Must not know: tables, quarantine, reports. Holds nothing but its settings: thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/driver.hpp"

namespace tensormem {

struct DebugGuardOptions {
  std::uint64_t front_guard = 64;  // at least; rounded up so that the block stays aligned
  std::uint64_t back_guard = 64;   // exactly; begins at the first byte behind the block
  std::uint8_t guard_byte = 0xFD;
  std::uint8_t fresh_byte = 0xCD;
  std::uint8_t freed_byte = 0xDD;
  bool poison_fresh = true;
  bool poison_freed = true;                      // without it a write after the free is found in the guards only
  bool host_accessible = false;                  // whether the upstream's memory may be touched by the processor
  std::uint64_t quarantine_bytes = 16ULL << 20;  // 0: blocks go back upstream at once
  std::uint64_t quarantine_blocks = 4096;
};

// Guards of 1 to 64 MiB.
Status check_guard_options(const DebugGuardOptions& options);

// [address - front, address) and [address + nbytes, address + nbytes + back) are guards; of no bytes once they are
// known to be broken.
struct GuardedMemory {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t front = 0;
  std::uint64_t back = 0;
};

// Bytes that are not what was painted, in one of the three areas.
struct GuardDamage {
  std::int64_t offset = 0;      // the first bad byte, from the first byte of the block; negative: before it
  std::uint64_t bad_bytes = 0;  // how many of that area
  std::uint8_t found = 0;       // the first bad byte's value
  std::uint8_t expected = 0;
};

class GuardBands {
 public:
  GuardBands(Driver& driver, std::int32_t device, const DebugGuardOptions& options)
      : driver_(driver), device_(device), options_(options) {}

  // Guards and fresh poison, on the stream. `*queued`: not done yet, the stream will get there.
  Status paint(const GuardedMemory& memory, StreamId stream, bool* queued) const;
  // Freed poison. Nothing may be using the memory.
  Status poison_freed(const GuardedMemory& memory) const;
  // Appends what is damaged. `freed`: the inside must be freed poison. The paint must be dry.
  Status find_damage(const GuardedMemory& memory, bool freed, std::vector<GuardDamage>* damage) const;
  // Whether the guards lie around the memory, and inside `[lowest, lowest + nbytes)`.
  bool is_valid(const GuardedMemory& memory, std::uint64_t lowest, std::uint64_t nbytes) const;

 private:
  Status fill(std::uint64_t address, std::uint64_t nbytes, std::uint8_t byte, bool in_place, StreamId stream) const;
  Status inspect(std::uint64_t address, std::uint64_t nbytes, std::uint8_t expected, std::int64_t offset,
                 std::vector<GuardDamage>* damage) const;
  // Copies bytes to where the processor can read them, and waits for it.
  Status fetch(std::uint64_t address, std::uint64_t nbytes, std::unique_ptr<std::uint8_t[]>* bytes) const;

  Driver& driver_;
  const std::int32_t device_;
  const DebugGuardOptions options_;
};

}  // namespace tensormem

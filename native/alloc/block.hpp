// Owns: what one outstanding allocation is, as a plain value, and the states it goes through.
// Must not know: who makes blocks or where their bytes are.
#pragma once

#include <cstdint>

namespace tensormem {

// live -> retired (given back, a stream has not passed yet) -> freed; quarantined: given back and kept from reuse.
enum class BlockState : std::uint8_t { live = 0, retired = 1, quarantined = 2, freed = 3 };

inline constexpr std::uint32_t kNoSlot = ~0U;

// Memory that has no address is known by a handle, beyond what any processor translates: touching one faults.
inline constexpr std::uint64_t kFirstHandle = 1ULL << 57;
inline constexpr std::uint64_t kHandleStep = 1ULL << 12;
inline constexpr bool is_handle(std::uint64_t address) { return address >= kFirstHandle && address < kFirstHandle * 2; }

struct Block {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t generation = 0;  // no other allocation of this process has it
  std::uint64_t stream = 0;      // the stream it was allocated on
  std::uint32_t tag = 0;
  std::uint32_t origin = 0;      // the resource that made it
  std::uint32_t slot = kNoSlot;  // the maker's own index, if it has one
  std::uint16_t chunk = 0;       // the maker's too: which of its pieces
  std::uint8_t alignment_log2 = 0;
  bool zeroed = false;  // its bytes are zero, as was wished for
};

}  // namespace tensormem

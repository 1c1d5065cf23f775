// Owns: what one recorded event is: a plain value of 64 bytes, the same in a ring and in a file (but for its time:
// ticks of the trace clock in a ring, nanoseconds since the beginning in a file). docs/reference/trace-format.md says
// the same for readers. Must not know: who reports, or where events go.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tensormem {

enum class TraceKind : std::uint8_t {
  allocate = 1,    // address, nbytes, generation, stream, tag; other: alignment
  deallocate = 2,  // address, nbytes, generation, stream, tag; detail: BlockState it went to
  map = 3,         // address, nbytes; other: number of pieces of physical memory
  unmap = 4,       // address, nbytes
  move = 5,        // address (new), nbytes; other: address before. The pages moved, no byte was copied
  copy = 6,        // address (destination), nbytes, stream; other: address of the source
  use = 7,         // address, nbytes, generation, stream; detail: 1 read, 2 write, 3 both
  fail = 8,        // nbytes asked for; detail: Code; other: the kind that failed; generation: bytes free, if known
  tag_begin = 9,   // tag
  tag_end = 10,    // tag
  counter = 11,    // tag: its name; other: the value, signed
  created = 12,    // resource
  destroyed = 13,  // resource
};

struct TraceEvent {
  std::uint64_t time = 0;
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t generation = 0;
  std::uint64_t other = 0;
  std::uint64_t stream = 0;
  std::uint32_t resource = 0;  // 0: none
  std::uint32_t tag = 0;
  std::uint32_t stack = 0;  // 0: none
  TraceKind kind = TraceKind::allocate;
  std::uint8_t depth = 0;  // how many resources stand above the one that reports; 0 is what the caller asked
  std::uint8_t detail = 0;
  std::uint8_t reserved = 0;
};

static_assert(sizeof(TraceEvent) == 64 && std::is_trivially_copyable_v<TraceEvent>);

}  // namespace tensormem

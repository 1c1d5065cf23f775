// Owns: the shape of a trace file (`.tmt`), as structs: a header, then chunks that delimit themselves. All numbers are
// little-endian. docs/reference/trace-format.md is the same for readers in any language.
// Must not know: how a file is written or read.
#pragma once

#include <cstdint>

namespace tensormem {

inline constexpr unsigned char kTraceMagic[8] = {0x89, 'T', 'M', 'T', '\r', '\n', 0x1A, '\n'};
inline constexpr std::uint32_t kTraceVersion = 1;
inline constexpr std::uint32_t kChunkMagic = 0x4B434D54;  // "TMCK"

struct TraceFileHeader {
  unsigned char magic[8] = {};
  std::uint32_t version = kTraceVersion;
  std::uint32_t header_bytes = sizeof(TraceFileHeader);
  std::uint32_t event_bytes = 64;
  std::uint32_t flags = 0;  // 1: with stacks
  std::uint64_t pid = 0;
  std::int64_t wall_ns = 0;        // when time 0 was, since 1970, UTC
  std::uint64_t monotonic_ns = 0;  // the same on the system's monotonic clock
  std::uint64_t reserved = 0;
  std::uint32_t reserved_too = 0;
  std::uint32_t crc = 0;  // of everything before
};
static_assert(sizeof(TraceFileHeader) == 64);

enum class ChunkType : std::uint16_t {
  events = 1,       // of one thread
  definitions = 2,  // names for numbers
  totals = 3,       // what each resource had handed out at this moment
  index = 4,        // where every chunk is
  end = 5,          // where the index is; the last thing in a file that was closed
  peaks = 6,        // the most and the least that was out between two times
};

struct ChunkHeader {
  std::uint32_t magic = kChunkMagic;
  ChunkType type = ChunkType::events;
  std::uint16_t version = 1;
  std::uint32_t count = 0;  // of records in the payload
  std::uint32_t thread = 0;
  std::uint64_t nbytes = 0;      // of the payload, which follows
  std::uint64_t first_time = 0;  // the earliest and the latest of its events
  std::uint64_t last_time = 0;
  std::uint64_t dropped = 0;  // events lost so far, by all threads
  std::uint32_t payload_crc = 0;
  std::uint32_t sequence = 0;  // chunks are numbered from 0
  std::uint32_t reserved = 0;
  std::uint32_t crc = 0;  // of everything before
};
static_assert(sizeof(ChunkHeader) == 64);

enum class DefinitionKind : std::uint16_t {
  tag = 1,       // texts: its text
  thread = 2,    // texts: its name
  resource = 3,  // numbers: the resource below it (0: none), 1 if it is only watched; texts: its name, its space
  frame = 4,     // numbers: line; texts: file, function
  stack = 5,     // numbers: frames, the innermost first
};

// Then `numbers` numbers of 4 bytes, then `texts` texts: a length of 4 bytes and so many bytes of UTF-8.
struct DefinitionHeader {
  DefinitionKind kind = DefinitionKind::tag;
  std::uint16_t numbers = 0;
  std::uint16_t texts = 0;
  std::uint16_t reserved = 0;
  std::uint32_t id = 0;
};
static_assert(sizeof(DefinitionHeader) == 12);

struct TotalsEntry {
  std::uint32_t resource = 0;
  std::uint32_t outermost = 0;  // 1: only what callers asked for; 0: what resources above asked for
  std::int64_t nbytes = 0;
  std::int64_t count = 0;
};
static_assert(sizeof(TotalsEntry) == 24);

enum class PeakKind : std::uint32_t { whole = 1, space = 2, tag = 3 };

// What programs had out, from one chunk of peaks that names the same until the next.
struct PeakEntry {
  PeakKind kind = PeakKind::whole;
  std::uint32_t id = 0;  // of a tag; of a space, the tag that has its text
  std::int64_t highest = 0;
  std::int64_t highest_count = 0;  // of blocks
  std::uint64_t highest_time = 0;
  std::int64_t lowest = 0;
  std::uint64_t lowest_time = 0;
  std::int64_t nbytes = 0;  // in the end
  std::int64_t count = 0;
};
static_assert(sizeof(PeakEntry) == 64);

struct IndexEntry {
  std::uint64_t offset = 0;
  std::uint64_t first_time = 0;
  std::uint64_t last_time = 0;
  std::uint32_t count = 0;
  std::uint32_t thread = 0;
  ChunkType type = ChunkType::events;
  std::uint16_t reserved = 0;
  std::uint32_t reserved_too = 0;
};
static_assert(sizeof(IndexEntry) == 40);

struct EndRecord {
  std::uint64_t index_offset = 0;
  std::uint64_t events = 0;
  std::uint64_t dropped = 0;
  std::uint64_t duration_ns = 0;
};
static_assert(sizeof(EndRecord) == 32);

}  // namespace tensormem

// Owns: one short function for each kind of event but those of resources, so that a layer reports in one line. Each
// does nothing when nobody records. Must not know: the types of the layers above.
#pragma once

#include <cstdint>

#include "trace/record.hpp"

namespace tensormem {

namespace reports {

// The rest is cold: it stays out of the caller's way.
[[gnu::noinline, gnu::cold]] inline void send(TraceKind kind, std::uint32_t resource, std::uint64_t address,
                                              std::uint64_t nbytes, std::uint64_t other, std::uint64_t stream,
                                              std::uint64_t generation, std::uint32_t tag,
                                              std::uint8_t detail) noexcept {
  const TraceNesting nesting;
  TraceEvent event;
  event.address = address;
  event.nbytes = nbytes;
  event.generation = generation;
  event.other = other;
  event.stream = stream;
  event.resource = resource;
  event.tag = tag;
  event.kind = kind;
  event.depth = nesting.depth();
  event.detail = detail;
  if (event.depth == 0) event.stack = trace_stack();
  trace_record(&event);
}

}  // namespace reports

inline void report_map(std::uint32_t resource, std::uint64_t address, std::uint64_t nbytes,
                       std::uint64_t pieces) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::map, resource, address, nbytes, pieces, 0, 0, 0, 0);
}
inline void report_unmap(std::uint32_t resource, std::uint64_t address, std::uint64_t nbytes) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::unmap, resource, address, nbytes, 0, 0, 0, 0, 0);
}
// The pages behind [before, before + nbytes) are now at `address`.
inline void report_move(std::uint32_t resource, std::uint64_t address, std::uint64_t nbytes, std::uint64_t before,
                        std::uint64_t generation = 0) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::move, resource, address, nbytes, before, 0, generation, 0, 0);
}
inline void report_copy(std::uint64_t destination, std::uint64_t source, std::uint64_t nbytes,
                        std::uint64_t stream) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::copy, 0, destination, nbytes, source, stream, 0, 0, 0);
}
inline void report_use(std::uint32_t resource, std::uint64_t address, std::uint64_t nbytes, std::uint64_t generation,
                       std::uint64_t stream, std::uint32_t tag, std::uint8_t access) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::use, resource, address, nbytes, 0, stream, generation, tag, access);
}
// Blocks of what is no resource: `generation` tells them apart there.
inline void report_allocate(std::uint32_t resource, std::uint64_t address, std::uint64_t nbytes,
                            std::uint64_t generation, std::uint32_t tag) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::allocate, resource, address, nbytes, 0, 0, generation, tag, 0);
}
inline void report_deallocate(std::uint32_t resource, std::uint64_t address, std::uint64_t nbytes,
                              std::uint64_t generation, std::uint32_t tag) noexcept {
  constexpr std::uint8_t kFreed = 3;  // as BlockState has it
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::deallocate, resource, address, nbytes, 0, 0, generation, tag, kFreed);
}
inline void report_tag(bool begins, std::uint32_t tag) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(begins ? TraceKind::tag_begin : TraceKind::tag_end, 0, 0, 0, 0, 0, 0, tag, 0);
}
inline void report_counter(std::uint32_t name, std::int64_t value) noexcept {
  if (trace_is_on()) [[unlikely]]
    reports::send(TraceKind::counter, 0, 0, 0, static_cast<std::uint64_t>(value), 0, 0, name, 0);
}

}  // namespace tensormem

// Owns: how a pool reports a block whose size changes where it is: it ends, and begins again with the same number.
#pragma once

#include "pool/virtual_memory_pool.hpp"
#include "trace/reports.hpp"

namespace tensormem {

// Called while `block` has its old size.
inline void report_resize(std::uint32_t pages, std::uint64_t base, const PoolBlock& block,
                          std::uint64_t size) noexcept {
  report_deallocate(pages, base + block.offset, block.size, block.id, block.tag);
  report_allocate(pages, base + block.offset, size, block.id, block.tag);
}

}  // namespace tensormem

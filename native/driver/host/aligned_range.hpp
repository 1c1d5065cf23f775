// Owns: addresses whose start is a multiple of more than a page, which the kernel gives only by asking for too much and
// handing back the ends.
// Must not know: what will be put there.
#pragma once

#include <cstdint>

namespace tensormem::host {

// Addresses without memory; `size` is whole pages, `wanted` a power of two; less than a page is a page. 0 or an errno.
int reserve_aligned(std::uint64_t size, std::uint64_t wanted, std::uint64_t* address) noexcept;

}  // namespace tensormem::host

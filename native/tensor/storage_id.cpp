#include "tensor/storage_id.hpp"

#include <atomic>

namespace tensormem {

namespace {

std::atomic<std::uint64_t> g_last{0};

}  // namespace

std::uint64_t next_storage_id() noexcept { return g_last.fetch_add(1, std::memory_order_relaxed) + 1; }

}  // namespace tensormem

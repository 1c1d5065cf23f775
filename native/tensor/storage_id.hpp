// Owns: the identity of storages, a number that is never given twice in a process. Not inline: every module that is
// linked with it would count on its own.
// Must not know: what a storage is.
#pragma once

#include <cstdint>

namespace tensormem {

std::uint64_t next_storage_id() noexcept;

}  // namespace tensormem

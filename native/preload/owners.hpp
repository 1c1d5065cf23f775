// Owns: who asked for a block: the library that holds the return address of the call, as a reporter with its file's
// name, and a tag that people know it by ("torch" for libc10.so of PyTorch). Calls that pass through the C or C++
// library's own functions (operator new, strdup) belong to whoever called those. Must not know: blocks.
#pragma once

#include "trace/foreign_blocks.hpp"

namespace tensormem {

// Resource 0: the call is tensormem's own, which reports for itself.
ForeignOwner owner_of_call(const void* return_address) noexcept;

}  // namespace tensormem

// Owns: running a plan of a copy with the CPU: long runs by the C library, short ones by loops for their width, the
// crossed ones (a transposition) in tiles, and large ones by two threads.
// Must not know: streams; whoever queues the work does.
#pragma once

#include "tensor/copy_plan.hpp"

namespace tensormem {

// Both sides must be memory that this process can touch; they may overlap only where nothing is copied twice.
void run_on_host(const CopyPlan& plan) noexcept;

}  // namespace tensormem

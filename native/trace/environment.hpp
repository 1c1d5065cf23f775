// Owns: the recording that the environment asks for (TENSORMEM_TRACE), whoever finds it there first: the preloaded
// library or the compiled modules. A child that inherits the environment leaves its parent's file alone, unless {pid}
// in the name gives it one of its own; a program that this process becomes through exec takes the file over. Must not
// know: Python.
#pragma once

#include "base/status.hpp"

namespace tensormem {

// Whether the environment asks this process to record.
bool environment_asks_for_trace();
// Whether every process has a file of its own.
bool environment_follows_children();
// Records as the environment says; nothing happens when it does not ask, or when this process records already.
Status start_trace_of_environment() noexcept;

}  // namespace tensormem

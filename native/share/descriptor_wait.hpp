// Owns: the wait until a descriptor is ready: a socket, or what another thread wakes us by. Must not know: what is
// read.
#pragma once

#include <poll.h>

#include <cstdint>

#include "base/wait.hpp"

namespace tensormem {

// Until one of them is ready, which its `revents` says; a closed descriptor is ready with POLLNVAL.
Status wait_for_descriptors(pollfd* watched, std::uint32_t count, const Wait& wait);

}  // namespace tensormem

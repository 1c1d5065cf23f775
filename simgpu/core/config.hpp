// Owns: what the simulated machine looks like, and the text that says so:
//   devices=2,memory=1GiB            two devices of 1 GiB each
//   memory=1GiB+512MiB               two devices of different sizes
//   profile=orin                     what such a device can do; first of all, whatever its place in the text
//   version=12020,peer=0,pools=0,virtual=0,managed=0,without=cuMemCreate+cuMemMap
//   concurrent=0,posix=0,integrated=1,granularity=64KiB,recommended=1GiB,queue=64
//   habits=0,free_waits=1            no habit but this one
// Must not know: who reads it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/habits.hpp"

namespace simgpu {

struct Config {
  const char* profile = "";
  std::vector<std::uint64_t> memory_bytes{1ULL << 30};  // one per device
  int version = 13000;
  int capability = 90;  // ten times the major number, and the minor one
  bool peer = true;
  bool pools = true;
  bool virtual_memory = true;
  bool managed = true;
  bool concurrent_managed = true;  // CPU and device may touch managed memory at the same time
  bool posix_handles = true;       // memory and pools can be exported by descriptor
  bool integrated = false;         // device memory is the host's
  std::uint64_t granularity = 2ULL << 20;
  std::uint64_t recommended_granularity = 2ULL << 20;
  std::uint64_t queue = 1024;  // pieces of work that a stream takes before a call waits
  Habits habits;
  std::set<std::string> without;  // functions that the driver does not have
};

// False, and `*why` says which part is wrong, when the text cannot be read; `*config` is as it was.
bool parse_config(const std::string& text, Config* config, std::string* why);

}  // namespace simgpu

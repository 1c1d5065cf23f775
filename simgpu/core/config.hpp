// Owns: what the simulated machine looks like, and the text that says so:
//   devices=2,memory=1GiB            two devices of 1 GiB each
//   memory=1GiB+512MiB               two devices of different sizes
//   version=12020,peer=0,pools=0,virtual=0,managed=0,without=cuMemCreate+cuMemMap
// Must not know: who reads it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace simgpu {

struct Config {
  std::vector<std::uint64_t> memory_bytes{1ULL << 30};  // one per device
  int version = 13000;
  bool peer = true;
  bool pools = true;
  bool virtual_memory = true;
  bool managed = true;
  std::set<std::string> without;  // functions that the driver does not have
};

// False, and `*why` says which part is wrong, when the text cannot be read; `*config` is as it was.
bool parse_config(const std::string& text, Config* config, std::string* why);

}  // namespace simgpu

#include "core/profiles.hpp"

#include <cstring>

namespace simgpu {

namespace {

constexpr std::uint64_t kKiB = 1ULL << 10;
constexpr std::uint64_t kMiB = 1ULL << 20;

struct Profile {
  const char* vendor;
  const char* name;
  int version;
  int capability;
  bool peer;
  bool pools;
  bool virtual_memory;
  bool managed;
  bool concurrent_managed;
  bool posix_handles;
  bool integrated;
  std::uint64_t granularity;
  std::uint64_t recommended_granularity;
  bool import_by_pointer;
};

// docs/explanation/gpus.md says where each line comes from, and which of its facts nobody has seen.
constexpr Profile kProfiles[] = {
    // vendor name version capability | peer pools virtual managed concurrent posix integrated | granularity | import
    {"cuda", "h100", 13000, 90, true, true, true, true, true, true, false, 2 * kMiB, 2 * kMiB, false},
    {"cuda", "orin", 12060, 87, false, true, true, true, false, true, true, 2 * kMiB, 2 * kMiB, false},
    {"cuda", "wsl", 13000, 89, false, true, true, true, false, false, false, 2 * kMiB, 2 * kMiB, false},
    {"cuda", "vgpu", 13000, 80, false, false, true, false, false, true, false, 2 * kMiB, 2 * kMiB, false},
    {"cuda", "novmm", 12020, 50, true, false, false, true, false, false, false, 2 * kMiB, 2 * kMiB, false},
    {"rocm", "mi300", 70151831, 94, true, true, true, true, true, true, false, 4 * kKiB, 2 * kMiB, false},
    {"rocm", "mi300-rocm7.1", 70151831, 94, true, true, true, true, true, true, false, 4 * kKiB, 2 * kMiB, false},
    {"rocm", "mi300-rocm6.2", 60241134, 94, true, true, true, true, true, true, false, 4 * kKiB, 4 * kKiB, true},
    {"rocm", "mi300-rocm10", 100000000, 94, true, true, true, true, true, true, false, 4 * kKiB, 2 * kMiB, false},
};

}  // namespace

bool use_profile(const std::string& name, Config* config) {
  for (const Profile& each : kProfiles) {
    if (std::strcmp(each.vendor, kVendor) != 0 || name != each.name) continue;
    config->profile = each.name;
    config->version = each.version;
    config->capability = each.capability;
    config->peer = each.peer;
    config->pools = each.pools;
    config->virtual_memory = each.virtual_memory;
    config->managed = each.managed;
    config->concurrent_managed = each.concurrent_managed;
    config->posix_handles = each.posix_handles;
    config->integrated = each.integrated;
    config->granularity = each.granularity;
    config->recommended_granularity = each.recommended_granularity;
    config->habits.import_by_pointer = each.import_by_pointer;
    return true;
  }
  return false;
}

std::string profile_names() {
  std::string names;
  for (const Profile& each : kProfiles) {
    if (std::strcmp(each.vendor, kVendor) != 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  return names;
}

}  // namespace simgpu

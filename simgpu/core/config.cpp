#include "core/config.hpp"

#include <cstdlib>

#include "core/profiles.hpp"

namespace simgpu {

namespace {

constexpr std::uint64_t kMaxDevices = 16;
constexpr std::uint64_t kMaxBytes = 1ULL << 40;
constexpr std::uint64_t kMinBytes = 4ULL << 20;
constexpr std::uint64_t kMinGranularity = 4ULL << 10;
constexpr std::uint64_t kMaxGranularity = 1ULL << 30;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end == std::string::npos ? end : end - start));
    if (end == std::string::npos) break;
    start = end + 1;
  }
  return parts;
}

bool parse_number(const std::string& text, std::uint64_t* value) {
  char* end = nullptr;
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const std::uint64_t number = std::strtoull(text.c_str(), &end, 10);
  const std::string unit = end;
  const int shift = unit.empty() ? 0 : unit == "KiB" ? 10 : unit == "MiB" ? 20 : unit == "GiB" ? 30 : -1;
  if (shift < 0 || number > (~0ULL >> shift)) return false;
  *value = number << shift;
  return true;
}

struct Draft {
  Config config;
  std::uint64_t devices = 0;
};

bool read_sizes(const std::string& text, Config* config) {
  config->memory_bytes.clear();
  for (const std::string& size : split(text, '+')) {
    std::uint64_t bytes = 0;
    if (!parse_number(size, &bytes) || bytes < kMinBytes || bytes > kMaxBytes) return false;
    config->memory_bytes.push_back(bytes & ~((2ULL << 20) - 1));
  }
  return config->memory_bytes.size() <= kMaxDevices;
}

std::uint64_t* number_of(const std::string& key, Config* config) {
  if (key == "granularity") return &config->granularity;
  if (key == "recommended") return &config->recommended_granularity;
  return key == "queue" ? &config->queue : nullptr;
}

bool* flag_of(const std::string& key, Config* config) {
#define SIM_HABIT(name) \
  if (key == #name) return &config->habits.name;
  SIM_HABITS(SIM_HABIT)
#undef SIM_HABIT
  return key == "peer"         ? &config->peer
         : key == "pools"      ? &config->pools
         : key == "virtual"    ? &config->virtual_memory
         : key == "managed"    ? &config->managed
         : key == "concurrent" ? &config->concurrent_managed
         : key == "posix"      ? &config->posix_handles
         : key == "integrated" ? &config->integrated
                               : nullptr;
}

void set_habits(bool on, Habits* habits) {
  // How a descriptor is passed is a fact of the interface: whoever wants it otherwise says so by name.
  const bool import_by_pointer = habits->import_by_pointer;
#define SIM_HABIT(name) habits->name = on;
  SIM_HABITS(SIM_HABIT)
#undef SIM_HABIT
  habits->import_by_pointer = import_by_pointer;
}

bool read_part(const std::string& key, const std::string& text, Draft* draft) {
  Config& config = draft->config;
  if (key == "profile") return true;  // read before all others
  if (key == "memory") return read_sizes(text, &config);
  if (key == "without") {
    for (const std::string& name : split(text, '+')) config.without.insert(name);
    return true;
  }
  std::uint64_t value = 0;
  if (!parse_number(text, &value)) return false;
  if (key == "devices") {
    draft->devices = value;
    return value <= kMaxDevices;
  }
  if (key == "version") {
    config.version = static_cast<int>(value);
    return value <= 1000000000;
  }
  if (std::uint64_t* const place = number_of(key, &config); place != nullptr) {
    *place = value;
    const bool is_power = value != 0 && (value & (value - 1)) == 0;
    return key == "queue" ? value != 0 : is_power && value >= kMinGranularity && value <= kMaxGranularity;
  }
  if (value > 1) return false;
  if (key == "habits") {
    set_habits(value == 1, &config.habits);
    return true;
  }
  bool* const flag = flag_of(key, &config);
  if (flag == nullptr) return false;
  *flag = value == 1;
  return true;
}

}  // namespace

bool parse_config(const std::string& text, Config* config, std::string* why) {
  Draft draft;
  draft.devices = ~0ULL;
  std::string profile = kDefaultProfile;
  for (const std::string& part : split(text, ',')) {
    if (part.starts_with("profile=")) profile = part.substr(8);
  }
  if (!use_profile(profile, &draft.config)) {
    *why = "no profile is called " + profile + "; there are " + profile_names();
    return false;
  }
  for (const std::string& part : split(text, ',')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || !read_part(part.substr(0, equals), part.substr(equals + 1), &draft)) {
      *why = "the simulated GPU cannot read " + part;
      return false;
    }
  }
  std::vector<std::uint64_t>& sizes = draft.config.memory_bytes;
  if (draft.devices != ~0ULL && draft.devices != sizes.size()) {
    if (sizes.size() != 1) {
      *why = "as many memory sizes as devices, or one for all of them";
      return false;
    }
    sizes.assign(draft.devices, sizes[0]);
  }
  Config& made = draft.config;
  if (made.recommended_granularity < made.granularity) made.recommended_granularity = made.granularity;
  *config = made;
  return true;
}

}  // namespace simgpu

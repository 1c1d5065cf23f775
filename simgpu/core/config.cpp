#include "core/config.hpp"

#include <cstdlib>

namespace simgpu {

namespace {

constexpr std::uint64_t kMaxDevices = 16;
constexpr std::uint64_t kMaxBytes = 1ULL << 40;
constexpr std::uint64_t kMinBytes = 4ULL << 20;

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

bool read_part(const std::string& key, const std::string& text, Draft* draft) {
  Config& config = draft->config;
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
    return value <= 1000000;
  }
  bool* const flag = key == "peer"      ? &config.peer
                     : key == "pools"   ? &config.pools
                     : key == "virtual" ? &config.virtual_memory
                     : key == "managed" ? &config.managed
                                        : nullptr;
  if (flag == nullptr || value > 1) return false;
  *flag = value == 1;
  return true;
}

}  // namespace

bool parse_config(const std::string& text, Config* config, std::string* why) {
  Draft draft;
  draft.devices = ~0ULL;
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
  *config = draft.config;
  return true;
}

}  // namespace simgpu

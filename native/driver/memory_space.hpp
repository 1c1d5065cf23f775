// Owns: where memory is and who can touch it, as one value that resources, traces, tensors and DLPack ask.
// Must not know: who asks, or how Python spells it.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "driver/driver.hpp"

namespace tensormem {

enum class SpaceKind : std::uint8_t { main = 0, pinned = 1, gpu = 2, managed = 3 };

struct MemorySpace {
  SpaceKind kind = SpaceKind::main;
  std::int32_t device = 0;
  bool host_reaches = true;
  bool device_reaches = false;

  bool nobody_reaches() const noexcept { return !host_reaches && !device_reaches; }
};

// The space of what `driver` makes on `device`. Abstract memory counts as main memory, and nobody can touch it.
inline MemorySpace space_of(const Driver& driver, std::int32_t device, MemoryKind kind = MemoryKind::device) {
  const std::string_view name = driver.name();
  const bool has_gpu = name != "host" && name != "abstract";
  switch (kind) {
    case MemoryKind::pinned:
      return {SpaceKind::pinned, 0, true, has_gpu};
    case MemoryKind::managed:
      return {SpaceKind::managed, 0, true, true};
    case MemoryKind::device:
      break;
  }
  if (has_gpu) return {SpaceKind::gpu, device, false, true};
  return {SpaceKind::main, 0, name == "host", false};
}

// The space behind such a text; false for any other text.
inline bool space_from_text(std::string_view text, MemorySpace* space) {
  constexpr std::string_view kGpu = "gpu:";
  if (text == "main")
    *space = {};
  else if (text == "pinned")
    *space = {SpaceKind::pinned, 0, true, false};
  else if (text == "managed")
    *space = {SpaceKind::managed, 0, true, true};
  else if (text.starts_with(kGpu)) {
    std::int32_t device = 0;
    const std::string_view number = text.substr(kGpu.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), device);
    if (error != std::errc() || end != number.data() + number.size() || device < 0) return false;
    *space = {SpaceKind::gpu, device, false, true};
  } else {
    return false;
  }
  return true;
}

// As `LogicalMemorySpace` prints: "main", "gpu:1".
inline std::string text_of(const MemorySpace& space) {
  switch (space.kind) {
    case SpaceKind::pinned:
      return "pinned";
    case SpaceKind::managed:
      return "managed";
    case SpaceKind::gpu:
      return "gpu:" + std::to_string(space.device);
    case SpaceKind::main:
      break;
  }
  return "main";
}

}  // namespace tensormem

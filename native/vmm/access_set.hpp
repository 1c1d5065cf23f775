// Owns: what each device may do with one mapping, as one word: two bits a device.
// Must not know: mappings, drivers.
#pragma once

#include <bit>
#include <cstdint>

#include "driver/types.hpp"

namespace tensormem {

class AccessSet {
 public:
  static constexpr std::int32_t kMaxDevices = 32;

  static constexpr bool covers(std::int32_t device) { return device >= 0 && device < kMaxDevices; }

  AccessFlags of(std::int32_t device) const { return static_cast<AccessFlags>((bits_ >> (2 * device)) & 3); }
  void set(std::int32_t device, AccessFlags flags) {
    bits_ &= ~(std::uint64_t{3} << (2 * device));
    bits_ |= static_cast<std::uint64_t>(flags) << (2 * device);
  }
  // The first that may do anything; 0 if there is none.
  std::int32_t first_device() const { return bits_ == 0 ? 0 : std::countr_zero(bits_) / 2; }
  bool operator==(const AccessSet&) const = default;

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace tensormem

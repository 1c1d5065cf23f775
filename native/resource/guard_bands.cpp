#include "resource/guard_bands.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "base/blocking.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kMaxGuardBytes = 64ULL << 20;
constexpr std::uint64_t kWindowBytes = 64 * 1024;
// From here on, painting and reading take long enough for other threads to use the time.
constexpr std::uint64_t kSlowBytes = 64 * 1024;

bool is_all(const std::uint8_t* bytes, std::uint64_t nbytes, std::uint8_t expected) {
  return bytes[0] == expected && std::memcmp(bytes, bytes + 1, nbytes - 1) == 0;
}

// Adds the damage of one window to that of its area.
void add_damage(const std::uint8_t* bytes, std::uint64_t nbytes, std::uint8_t expected, std::int64_t offset,
                GuardDamage* area) {
  if (is_all(bytes, nbytes, expected)) [[likely]]
    return;
  for (std::uint64_t i = 0; i < nbytes; ++i) {
    if (bytes[i] == expected) continue;
    if (area->bad_bytes++ == 0) {
      area->offset = offset + static_cast<std::int64_t>(i);
      area->found = bytes[i];
      area->expected = expected;
    }
  }
}

}  // namespace

Status check_guard_options(const DebugGuardOptions& options) {
  for (const std::uint64_t guard : {options.front_guard, options.back_guard}) {
    if (guard == 0 || guard > kMaxGuardBytes)
      return Status::fail(Code::invalid_size, "a guard has 1 byte to 64 MiB", guard);
  }
  return {};
}

bool GuardBands::is_valid(const GuardedMemory& memory, std::uint64_t lowest, std::uint64_t nbytes) const {
  // A guard that is known to be broken has no bytes any more.
  const bool sized = (memory.front == 0 || memory.front >= options_.front_guard) &&
                     (memory.back == 0 || memory.back == options_.back_guard);
  return check_guard_options(options_).ok() && memory.nbytes != 0 && sized && memory.address - memory.front >= lowest &&
         memory.address + memory.nbytes + memory.back <= lowest + nbytes;
}

Status GuardBands::paint(const GuardedMemory& memory, StreamId stream, bool* queued) const {
  std::optional<BlockingRegion> region;
  if (memory.nbytes >= kSlowBytes) region.emplace();
  // Memory may be handed out while the stream still has to end its former use: only then it must wait in the stream.
  bool idle = false;
  TM_TRY(driver_.stream_query(stream, &idle));
  const bool in_place = idle && options_.host_accessible;
  *queued = !in_place;
  TM_TRY(fill(memory.address - memory.front, memory.front, options_.guard_byte, in_place, stream));
  TM_TRY(fill(memory.address + memory.nbytes, memory.back, options_.guard_byte, in_place, stream));
  if (!options_.poison_fresh) return {};
  return fill(memory.address, memory.nbytes, options_.fresh_byte, in_place, stream);
}

Status GuardBands::poison_freed(const GuardedMemory& memory) const {
  if (!options_.poison_freed) return {};
  std::optional<BlockingRegion> region;
  if (memory.nbytes >= kSlowBytes) region.emplace();
  return fill(memory.address, memory.nbytes, options_.freed_byte, options_.host_accessible, kDefaultStream);
}

Status GuardBands::find_damage(const GuardedMemory& memory, bool freed, std::vector<GuardDamage>* damage) const {
  std::optional<BlockingRegion> region;
  const bool inside = freed && options_.poison_freed;
  if (!options_.host_accessible || (inside && memory.nbytes >= kSlowBytes)) region.emplace();
  const auto front = static_cast<std::int64_t>(memory.front);
  TM_TRY(inspect(memory.address - memory.front, memory.front, options_.guard_byte, -front, damage));
  if (inside) TM_TRY(inspect(memory.address, memory.nbytes, options_.freed_byte, 0, damage));
  return inspect(memory.address + memory.nbytes, memory.back, options_.guard_byte,
                 static_cast<std::int64_t>(memory.nbytes), damage);
}

Status GuardBands::fill(std::uint64_t address, std::uint64_t nbytes, std::uint8_t byte, bool in_place,
                        StreamId stream) const {
  if (!in_place) return driver_.fill({.address = address, .device = device_}, {.width = nbytes}, byte, 1, stream);
  std::memset(reinterpret_cast<void*>(address), byte, nbytes);
  return {};
}

Status GuardBands::inspect(std::uint64_t address, std::uint64_t nbytes, std::uint8_t expected, std::int64_t offset,
                           std::vector<GuardDamage>* damage) const {
  GuardDamage area;
  if (nbytes == 0) return {};
  if (options_.host_accessible) {
    add_damage(reinterpret_cast<const std::uint8_t*>(address), nbytes, expected, offset, &area);
  } else {
    const std::uint64_t window = std::min(nbytes, kWindowBytes);
    std::unique_ptr<std::uint8_t[]> bytes(new (std::nothrow) std::uint8_t[window]);
    if (bytes == nullptr) return Status::fail(Code::out_of_memory, "no memory to inspect a block with", window);
    for (std::uint64_t done = 0; done < nbytes; done += window) {
      const std::uint64_t size = std::min(window, nbytes - done);
      TM_TRY(fetch(address + done, size, &bytes));
      add_damage(bytes.get(), size, expected, offset + static_cast<std::int64_t>(done), &area);
    }
  }
  if (area.bad_bytes != 0) damage->push_back(area);
  return {};
}

Status GuardBands::fetch(std::uint64_t address, std::uint64_t nbytes, std::unique_ptr<std::uint8_t[]>* bytes) const {
  const Pitched host{.address = reinterpret_cast<std::uint64_t>(bytes->get()), .device = -1};
  TM_TRY(driver_.copy(host, {.address = address, .device = device_}, {.width = nbytes}, kDefaultStream));
  if (driver_.stream_is_inline(kDefaultStream)) return {};
  Status waited = driver_.stream_synchronize(kDefaultStream);
  // The copy may still be under way: memory that it may write to is kept for ever rather than reused.
  if (!waited.ok()) (void)bytes->release();
  return waited;
}

}  // namespace tensormem

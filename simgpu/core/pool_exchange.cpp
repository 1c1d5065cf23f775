// Pools and their memory between processes: a pool goes by descriptor, what it gave out by a note of 64 bytes.
#include <unistd.h>

#include <cstring>

#include "core/descriptors.hpp"
#include "core/machine.hpp"

namespace simgpu {

namespace {

// CUmemPoolPtrExportData, as this driver fills it.
struct PointerNote {
  std::uint64_t mark = kMark;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t reserved[5] = {};
  static constexpr std::uint64_t kMark = 0x72746e6967736d74ULL;
};
static_assert(sizeof(PointerNote) == 64);

}  // namespace

Result Pools::export_fd(Pool& pool, int* fd) {
  if (pool.arena == nullptr || (pool.handle_types & 1) == 0) return kInvalidValue;
  const std::uint64_t note = static_cast<std::uint64_t>(pool.place);
  return seal(pool.arena->file(), pool.arena->size(), note, fd);
}

Result Pools::import_fd(Device& device, int fd, Pool** pool) {
  int file = -1;
  Letter letter;
  SIM_TRY(unseal(fd, &file, &letter));
  auto arena = std::make_unique<Arena>();
  const auto place = static_cast<PoolPlace>(letter.note);
  if (!arena->open_file(file, letter.size, place != PoolPlace::device)) {
    ::close(file);
    return kInvalidValue;
  }
  SIM_TRY(create(device, 1, 0, pool, false));
  (*pool)->place = place;
  (*pool)->imported = true;
  adopt(**pool, std::move(arena));
  return kSuccess;
}

Result Pools::export_pointer(std::uint64_t address, void* note) {
  const Range* const range = machine_.memory.find_start(address);
  const bool fits = range != nullptr && range->kind == Kind::pooled && range->pool->arena != nullptr;
  if (!fits || (range->pool->handle_types & 1) == 0) return kInvalidValue;
  const PointerNote told{PointerNote::kMark, address - range->pool->arena->start(), range->size, {}};
  std::memcpy(note, &told, sizeof told);
  return kSuccess;
}

// Memory that is imported again is the same, and must be freed as often.
Result Pools::import_pointer(Pool& pool, const void* note, std::uint64_t* address) {
  PointerNote told;
  std::memcpy(&told, note, sizeof told);
  if (!pool.imported || told.mark != PointerNote::kMark || told.size == 0) return kInvalidValue;
  if (told.offset > pool.arena->size() || told.size > pool.arena->size() - told.offset) return kInvalidValue;
  *address = pool.arena->start() + told.offset;
  if (Range* const known = machine_.memory.find_start(*address); known != nullptr) {
    if (known->size != told.size) return kInvalidValue;
    known->imports += 1;
    return kSuccess;
  }
  if (machine_.memory.overlaps(*address, told.size)) return kInvalidValue;
  Range range;
  range.start = *address;
  range.size = told.size;
  range.kind = Kind::pooled;
  range.device = pool.device;
  range.window = pool.arena->window();
  range.pool = &pool;
  range.imports = 1;
  machine_.memory.add(range);
  pool.live += 1;
  return kSuccess;
}

}  // namespace simgpu

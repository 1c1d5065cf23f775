#include "driver/host/spare_files.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/fork_guard.hpp"
#include "base/invariant.hpp"
#include "driver/host/memory_gauge.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

using Files = std::array<SpareFile, kMaxSpareFiles>;

// Below this, all of a file is taken to have pages: asking the kernel costs more than clearing them.
constexpr std::uint64_t kSmallFileBytes = 64 << 10;

// The pages that may be kept: enough for a few large tensors, and little enough for nobody to miss.
std::uint64_t max_spare_bytes() {
  static const std::uint64_t share = [] {
    MemoryInfo info;
    return MemoryGauge().read(&info).ok() ? info.total_bytes / 16 : 0;
  }();
  return share;
}

// A fork waits for whoever is in here: a child never finds its memory emptied by a parent that did not know of it.
struct Place {
  std::mutex mutex;
  ForkGuard fork_guard{mutex};
  Files kept;  // the last one first; the first `count` are files
  std::size_t count = 0;
  std::uint64_t bytes = 0;

  static Place& instance() {
    static Place* const place = new Place;  // never destroyed: memory may be given up at the very end of the process
    return *place;
  }

  SpareFile take(std::size_t at) {
    const SpareFile taken = kept[at];
    std::move(kept.begin() + static_cast<std::ptrdiff_t>(at) + 1, kept.begin() + static_cast<std::ptrdiff_t>(count),
              kept.begin() + static_cast<std::ptrdiff_t>(at));
    kept[--count] = {};
    bytes -= taken.committed_bytes;
    TM_EXPECT(is_valid());
    return taken;
  }
  void keep(const SpareFile& spare) {
    std::move_backward(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count),
                       kept.begin() + static_cast<std::ptrdiff_t>(count) + 1);
    kept[0] = spare;
    ++count;
    bytes += spare.committed_bytes;
    TM_EXPECT(is_valid());
  }
  // Those that were made before a fork: another process may hold them.
  void take_stale(Files* stale) {
    std::size_t found = 0;
    for (std::size_t i = count; i-- > 0;)
      if (kept[i].forks != fork_count()) (*stale)[found++] = take(i);
  }
  // The oldest, until there is room for one more.
  void make_room(std::uint64_t wanted, Files* oldest) {
    std::size_t found = 0;
    while (count == kMaxSpareFiles || (count > 0 && bytes + wanted > max_spare_bytes()))
      (*oldest)[found++] = take(count - 1);
  }
  bool is_valid() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (kept[i].fd < 0 || kept[i].address == 0 || kept[i].committed_bytes > kept[i].mapped_bytes) return false;
      sum += kept[i].committed_bytes;
    }
    return sum == bytes;
  }
};

void let_go(const SpareFile& spare) {
  if (spare.fd < 0) return;
  if (os::unmap(spare.address, spare.mapped_bytes) != 0) (void)os::unmap(spare.address, spare.mapped_bytes);
  (void)os::close(spare.fd);
}

void let_go_of_all(const Files& files) { std::for_each(files.begin(), files.end(), let_go); }

void clear(std::uint64_t address, std::uint64_t nbytes) {
  std::memset(reinterpret_cast<void*>(address), 0, nbytes);  // NOLINT(performance-no-int-to-ptr)
}

// Clears the pages that there are, and makes none.
bool clear_pages(const SpareFile& spare) {
  if (spare.file_bytes == 0) return true;
  if (spare.mapped_bytes <= kSmallFileBytes) {
    clear(spare.address, spare.mapped_bytes);
    return true;
  }
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  while (end < spare.file_bytes) {
    if (os::find_pages(spare.fd, end, &begin, &end) != 0) return false;
    if (begin >= spare.file_bytes) return true;
    clear(spare.address + begin, std::min(end, spare.mapped_bytes) - begin);
  }
  return true;
}

// How much memory a file has, all of it where that cannot be said; if it is too much, the file is emptied.
bool settle(SpareFile* spare) {
  spare->committed_bytes = spare->mapped_bytes;
  os::FileFacts facts;
  if (spare->mapped_bytes > kSmallFileBytes && os::describe_file(spare->fd, &facts) == 0)
    spare->committed_bytes = std::min(facts.committed_bytes, spare->mapped_bytes);
  if (spare->committed_bytes <= max_spare_bytes()) return true;
  spare->committed_bytes = spare->file_bytes = 0;
  return os::resize_file(spare->fd, 0) == 0;
}

// How many files; and the bytes of their pages.
std::size_t drop_all(std::uint64_t* bytes) {
  Files kept;
  std::size_t count = 0;
  {
    Place& place = Place::instance();
    const std::lock_guard lock(place.mutex);
    kept = std::exchange(place.kept, {});
    *bytes = std::exchange(place.bytes, 0);
    count = std::exchange(place.count, 0);
  }
  let_go_of_all(kept);
  return count;
}

}  // namespace

bool take_spare_file(std::uint64_t mapped_bytes, std::uint64_t name_hash, SpareFile* spare) noexcept {
  Files stale;
  bool found = false;
  {
    Place& place = Place::instance();
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock.owns_lock() || place.count == 0) return false;
    place.take_stale(&stale);
    for (std::size_t i = 0; i < place.count && !found; ++i) {
      found = place.kept[i].mapped_bytes == mapped_bytes && place.kept[i].name_hash == name_hash;
      if (found) *spare = place.take(i);
    }
  }
  let_go_of_all(stale);
  if (!found || clear_pages(*spare)) return found;
  let_go(*spare);
  return false;
}

bool keep_spare_file(SpareFile spare) noexcept {
  Files oldest;
  {
    Place& place = Place::instance();
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock.owns_lock() || spare.forks != fork_count() || !settle(&spare)) return false;
    place.make_room(spare.committed_bytes, &oldest);
    place.keep(spare);
  }
  let_go_of_all(oldest);
  return true;
}

std::uint64_t drop_spare_files() noexcept {
  std::uint64_t bytes = 0;
  (void)drop_all(&bytes);
  return bytes;
}

bool yield_spare_files() noexcept {
  std::uint64_t bytes = 0;
  return drop_all(&bytes) != 0;
}

std::uint64_t spare_file_bytes() noexcept {
  Place& place = Place::instance();
  const std::lock_guard lock(place.mutex);
  return place.bytes;
}

}  // namespace tensormem::host

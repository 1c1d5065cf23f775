#include "driver/host/spare_files.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/fork_guard.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

using Files = std::array<SpareFile, kMaxSpareFiles>;

// A fork waits for whoever is in here: a child never finds its memory emptied by a parent that did not know of it.
struct Place {
  std::mutex mutex;
  ForkGuard fork_guard{mutex};
  Files kept;  // the last one first; the first `count` are files
  std::size_t count = 0;

  static Place& instance() {
    static Place* const place = new Place;  // never destroyed: memory may be given up at the very end of the process
    return *place;
  }

  SpareFile take(std::size_t at) {
    const SpareFile taken = kept[at];
    std::move(kept.begin() + static_cast<std::ptrdiff_t>(at) + 1, kept.begin() + static_cast<std::ptrdiff_t>(count),
              kept.begin() + static_cast<std::ptrdiff_t>(at));
    kept[--count] = {};
    return taken;
  }
  // Those that were made before a fork: another process may hold them.
  void take_stale(Files* stale) {
    std::size_t found = 0;
    for (std::size_t i = count; i-- > 0;)
      if (kept[i].forks != fork_count()) (*stale)[found++] = take(i);
  }
};

void let_go(const SpareFile& spare) {
  if (spare.fd < 0) return;
  if (os::unmap(spare.address, spare.mapped_bytes) != 0) (void)os::unmap(spare.address, spare.mapped_bytes);
  (void)os::close(spare.fd);
}

void let_go_of_all(const Files& files) { std::for_each(files.begin(), files.end(), let_go); }

}  // namespace

bool take_spare_file(std::uint64_t mapped_bytes, SpareFile* spare) noexcept {
  Files stale;
  bool found = false;
  {
    Place& place = Place::instance();
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock.owns_lock() || place.count == 0) return false;
    place.take_stale(&stale);
    for (std::size_t i = 0; i < place.count && !found; ++i) {
      found = place.kept[i].mapped_bytes == mapped_bytes;
      if (found) *spare = place.take(i);
    }
  }
  let_go_of_all(stale);
  return found;
}

bool keep_spare_file(const SpareFile& spare) noexcept {
  SpareFile oldest;
  {
    Place& place = Place::instance();
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock.owns_lock() || spare.forks != fork_count() || os::resize_file(spare.fd, 0) != 0) return false;
    if (place.count == kMaxSpareFiles) oldest = place.take(kMaxSpareFiles - 1);
    std::move_backward(place.kept.begin(), place.kept.begin() + static_cast<std::ptrdiff_t>(place.count),
                       place.kept.begin() + static_cast<std::ptrdiff_t>(place.count) + 1);
    place.kept[0] = spare;
    ++place.count;
  }
  let_go(oldest);
  return true;
}

void drop_spare_files() noexcept {
  Files kept;
  {
    Place& place = Place::instance();
    const std::lock_guard lock(place.mutex);
    kept = std::exchange(place.kept, {});
    place.count = 0;
  }
  let_go_of_all(kept);
}

}  // namespace tensormem::host

#include "driver/host/spare_file.hpp"

#include <mutex>
#include <utility>

#include "base/fork_guard.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

// A fork waits for whoever is in here: a child never finds its memory emptied by a parent that did not know of it.
struct Place {
  std::mutex mutex;
  ForkGuard fork_guard{mutex};
  SpareFile kept;

  static Place& instance() {
    static Place* const place = new Place;  // never destroyed: memory may be given up at the very end of the process
    return *place;
  }
};

void let_go(const SpareFile& spare) {
  if (spare.fd < 0) return;
  if (os::unmap(spare.address, spare.mapped_bytes) != 0) (void)os::unmap(spare.address, spare.mapped_bytes);
  (void)os::close(spare.fd);
}

}  // namespace

bool take_spare_file(std::uint64_t mapped_bytes, SpareFile* spare) noexcept {
  SpareFile stale;
  {
    Place& place = Place::instance();
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock.owns_lock() || place.kept.fd < 0) return false;
    if (place.kept.forks == fork_count()) {
      if (place.kept.mapped_bytes != mapped_bytes) return false;
      *spare = std::exchange(place.kept, {});
      return true;
    }
    stale = std::exchange(place.kept, {});
  }
  let_go(stale);
  return false;
}

bool keep_spare_file(const SpareFile& spare) noexcept {
  SpareFile former;
  {
    Place& place = Place::instance();
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (!lock.owns_lock() || spare.forks != fork_count() || os::resize_file(spare.fd, 0) != 0) return false;
    former = std::exchange(place.kept, spare);
  }
  let_go(former);
  return true;
}

void drop_spare_file() noexcept {
  SpareFile kept;
  {
    Place& place = Place::instance();
    const std::lock_guard lock(place.mutex);
    kept = std::exchange(place.kept, {});
  }
  let_go(kept);
}

}  // namespace tensormem::host

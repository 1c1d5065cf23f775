#include "share/member_lock.hpp"

#include <cerrno>
#include <mutex>
#include <vector>

#include "driver/host/os.hpp"

namespace tensormem {

namespace {

namespace os = host::os;

// Every lock of this process, so that a forked child can let go of all of them.
struct Locks {
  std::mutex mutex;
  std::vector<MemberLock*> all;

  // Never destroyed: a process may fork while it exits.
  static Locks& instance() {
    static Locks* const locks = [] {
      auto* made = new Locks;
      os::register_fork_handlers([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                                 [] {
                                   for (MemberLock* each : instance().all) each->abandon_in_child();
                                   instance().all.clear();
                                   instance().mutex.unlock();
                                 });
      return made;
    }();
    return *locks;
  }
};

}  // namespace

Status MemberLock::open(int fd, std::unique_ptr<MemberLock>* lock) {
  std::unique_ptr<MemberLock> made(new MemberLock);
  Locks& locks = Locks::instance();
  const std::lock_guard held(locks.mutex);  // no fork between opening the file and knowing it
  int own = -1;
  if (const int error = os::reopen(fd, &own); error != 0) return Status::driver_error(error, "open(/proc/self/fd)");
  made->fd_.store(own);
  locks.all.push_back(made.get());
  *lock = std::move(made);
  return {};
}

MemberLock::~MemberLock() {
  Locks& locks = Locks::instance();
  const std::lock_guard held(locks.mutex);
  std::erase(locks.all, this);
  if (const int own = fd_.load(); own >= 0) os::close(own);
}

void MemberLock::abandon_in_child() noexcept {
  if (const int own = fd_.exchange(-1); own >= 0) os::close(own);
}

int MemberLock::try_lock(std::uint64_t byte) noexcept {
  const int own = fd_.load();
  return own >= 0 ? os::lock_byte(own, byte) : EAGAIN;
}

void MemberLock::unlock(std::uint64_t byte) noexcept {
  if (const int own = fd_.load(); own >= 0) os::unlock_byte(own, byte);
}

bool MemberLock::is_locked_by_another(std::uint64_t byte) noexcept {
  const int own = fd_.load();
  bool locked = true;
  if (own < 0 || os::look_at_byte(own, byte, &locked) != 0) return true;
  return locked;
}

}  // namespace tensormem

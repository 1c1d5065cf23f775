#include "pool/ledger_table.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/invariant.hpp"
#include "driver/host/os.hpp"

namespace tensormem {

namespace {

namespace os = host::os;

constexpr std::uint64_t kMagic = 0x31'64'67'6C'6D'74'00'FFULL;  // no text file begins like that
constexpr std::uint32_t kVersion = 2;
constexpr std::uint64_t kSlotsAt = 4096;
constexpr std::uint64_t kFileSize = kSlotsAt + LedgerTable::kSlots * sizeof(LedgerSlot);
constexpr std::uint64_t kTermsByte = LedgerTable::kSlots;  // slot i has the lock on byte i

// --- Forks: every table of this process, so that a child can let go of locks it must not have -----------------------
struct Tables {
  std::mutex mutex;
  std::vector<LedgerTable*> all;

  // Never destroyed: a process may fork while it exits.
  static Tables& instance() {
    static Tables* const tables = [] {
      auto* made = new Tables;
      os::register_fork_handlers([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                                 [] {
                                   for (LedgerTable* each : instance().all) each->abandon_in_child();
                                   instance().all.clear();
                                   instance().mutex.unlock();
                                 });
      return made;
    }();
    return *tables;
  }
  void add(LedgerTable* table) {
    const std::lock_guard lock(mutex);
    all.push_back(table);
  }
  void remove(LedgerTable* table) {
    const std::lock_guard lock(mutex);
    std::erase(all, table);
  }
};

Status refuse(const char* why) { return Status::fail(Code::invalid_argument, why); }

template <std::size_t kWords>
using Text = std::array<std::atomic<std::uint64_t>, kWords>;

template <std::size_t kWords>
std::string read_text(const Text<kWords>& words) {
  char text[kWords * 8 + 1] = {};
  for (std::size_t word = 0; word < kWords; ++word) {
    const std::uint64_t bytes = words[word].load();
    std::memcpy(text + word * 8, &bytes, 8);
  }
  return text;
}

template <std::size_t kWords>
void write_text(Text<kWords>& words, std::string_view text) {
  char bytes[kWords * 8] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), sizeof(bytes)));
  for (std::size_t word = 0; word < kWords; ++word) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes + word * 8, 8);
    words[word].store(value);
  }
}

}  // namespace

Status LedgerTable::create(std::uint64_t limit, LedgerTablePtr* table) {
  const LedgerTablePtr made(new LedgerTable);
  if (const int error = os::create_memfd("tensormem-ledger", &made->fd_); error != 0)
    return Status::driver_error(error, "memfd_create");
  if (const int error = os::restrict_to_owner(made->fd_); error != 0) return Status::driver_error(error, "fchmod");
  if (const int error = os::resize_file(made->fd_, kFileSize); error != 0)
    return Status::driver_error(error, "ftruncate");
  if (const int error = os::seal_size(made->fd_); error != 0) return Status::driver_error(error, "fcntl(F_ADD_SEALS)");
  TM_TRY(made->map());
  made->header_->version.store(kVersion);
  made->header_->slot_count.store(kSlots);
  made->header_->limit.store(limit);
  made->header_->magic.store(kMagic);
  *table = made;
  return {};
}

Status LedgerTable::attach(int fd, LedgerTablePtr* table) {
  const LedgerTablePtr found(new LedgerTable);
  if (const int error = os::duplicate(fd, &found->fd_); error != 0)
    return error == EBADF ? refuse("the file descriptor is not open") : Status::driver_error(error, "fcntl");
  TM_TRY(found->check_file());
  TM_TRY(found->map());
  TM_TRY(found->check_header());
  *table = found;
  return {};
}

Status LedgerTable::check_file() const {
  os::FileFacts facts;
  if (const int error = os::describe_file(fd_, &facts); error != 0) return Status::driver_error(error, "fstat");
  if (!facts.memory_file) return refuse("the file is no memory file, so it is no shared budget");
  if (facts.size != kFileSize) return refuse("the file does not have the size of a shared budget");
  if (!facts.shrink_sealed || !facts.grow_sealed)
    return refuse("the file is not sealed: its size could change under us");
  return {};
}

Status LedgerTable::check_header() const {
  if (header_->magic.load() != kMagic) return refuse("the file does not begin like a shared budget");
  if (header_->version.load() != kVersion || header_->slot_count.load() != kSlots)
    return refuse("the shared budget was made by another version of tensormem");
  return {};
}

// A descriptor that arrived from elsewhere shares its locks with the sender. Only a new open file description has locks
// that end with this process. The memory is mapped through the other one, because a mapping keeps its description
// alive, also in a forked child.
Status LedgerTable::map() {
  int own = -1;
  if (const int error = os::reopen(fd_, &own); error != 0) return Status::driver_error(error, "open(/proc/self/fd)");
  lock_fd_.store(own);
  if (const int error = os::map_shared(fd_, kFileSize, &address_); error != 0)
    return Status::driver_error(error, "mmap");
  header_ = reinterpret_cast<LedgerHeader*>(address_);
  slots_ = reinterpret_cast<LedgerSlot*>(address_ + kSlotsAt);
  Tables::instance().add(this);
  return {};
}

bool LedgerTable::is_valid() const {
  if (address_ == 0) return own_slot_.load() == kSlots;  // not made to its end
  const bool placed = header_ == reinterpret_cast<const LedgerHeader*>(address_) &&
                      slots_ == reinterpret_cast<const LedgerSlot*>(address_ + kSlotsAt);
  return placed && fd_ >= 0 && lock_fd_.load() != fd_ && own_slot_.load() <= kSlots;
}

LedgerTable::~LedgerTable() {
  TM_WALK(is_valid());
  Tables::instance().remove(this);
  if (address_ != 0) os::unmap(address_, kFileSize);
  if (const int own = lock_fd_.load(); own >= 0) os::close(own);
  if (fd_ >= 0) os::close(fd_);
}

void LedgerTable::abandon_in_child() {
  if (const int own = lock_fd_.exchange(-1); own >= 0) os::close(own);
}

void LedgerTable::empty(LedgerSlot& slot) {
  // What counts goes first; a slot that is not joined is looked at by nobody.
  slot.joined.store(0);
  for (auto* word : {&slot.used, &slot.wanted, &slot.guaranteed, &slot.maximum, &slot.asked_bytes, &slot.asked_idle,
                     &slot.times_asked, &slot.peak, &slot.job, &slot.job_limit})
    word->store(0);
  for (auto* word : {&slot.pid, &slot.priority, &slot.listens, &slot.ask_serial, &slot.answered}) word->store(0);
  for (auto& word : slot.name) word.store(0);
  for (auto& word : slot.job_name) word.store(0);
}

// Who joins holds the lock of the terms, so nobody comes beyond the last one that is seen here. A reader that knows the
// smaller width has published its claim before the newcomer of a higher slot looks around.
void LedgerTable::fit_width(std::size_t taken) {
  std::size_t width = std::max(this->width(), taken + 1);
  while (width > taken + 1 && slots_[width - 1].joined.load() == 0) --width;
  header_->width.store(static_cast<std::uint32_t>(width));
}

Status LedgerTable::take_slot(std::size_t* index) {
  reap_dead();
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (slots_[i].joined.load() != 0) continue;
    const int error = os::lock_byte(lock_fd_.load(), i);
    if (error == EAGAIN) continue;  // somebody is joining or cleaning up there
    if (error != 0) return Status::driver_error(error, "fcntl(F_OFD_SETLK)");
    own_slot_.store(i);
    empty(slots_[i]);
    fit_width(i);
    *index = i;
    return {};
  }
  return refuse("the shared budget has no place for another participant");
}

void LedgerTable::leave_slot(std::size_t index) {
  if (is_forked()) return;
  empty(slots_[index]);
  own_slot_.store(kSlots);
  os::unlock_byte(lock_fd_.load(), index);
  tell_change();
}

// The lock is the proof: who gets it knows that the owner is gone, and nobody else cleans up at the same time. Killed
// in the middle, it lets the lock go as well, and the next one does the same again. One's own lock would be given
// again, so that slot is left out.
std::size_t LedgerTable::reap_dead() {
  std::size_t reaped = 0;
  const std::lock_guard lock(reap_mutex_);
  const int own = lock_fd_.load();
  if (own < 0) return 0;
  for (std::size_t i = 0; i < width(); ++i) {
    if (slots_[i].joined.load() == 0 || i == own_slot_) continue;
    if (os::lock_byte(own, i) != 0) continue;
    if (slots_[i].joined.load() != 0) {
      empty(slots_[i]);
      ++reaped;
    }
    os::unlock_byte(own, i);
  }
  if (reaped != 0) tell_change();
  return reaped;
}

Status LedgerTable::lock_terms(const Wait& wait) {
  const auto ask = [&](bool* locked) {
    const int error = os::lock_byte(lock_fd_.load(), kTermsByte);
    *locked = error == 0;
    return error == 0 || error == EAGAIN ? Status() : Status::driver_error(error, "fcntl(F_OFD_SETLK)");
  };
  bool locked = false;
  TM_TRY(ask(&locked));
  return locked ? Status() : wait.by_asking(ask);
}

void LedgerTable::unlock_terms() { os::unlock_byte(lock_fd_.load(), kTermsByte); }

void LedgerTable::tell_change() {
  header_->changes.fetch_add(1);
  // Always, because a count of waiters would be wrong for ever once one of them was killed.
  os::wake_waiters(header_->changes);
}

std::uint64_t LedgerTable::guaranteed_without(std::size_t index, std::uint64_t job) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < width(); ++i) {
    if (i == index || slots_[i].joined.load() == 0 || (job != 0 && slots_[i].job.load() != job)) continue;
    sum = add_saturated(sum, slots_[i].guaranteed.load());
  }
  return sum;
}

std::vector<Participant> LedgerTable::participants() {
  std::vector<Participant> found;
  for (std::size_t i = 0; i < width(); ++i) {
    const LedgerSlot& slot = slots_[i];
    if (slot.joined.load() == 0) continue;
    found.push_back({read_text(slot.name), read_text(slot.job_name), slot.pid.load(), slot.priority.load(),
                     slot.used.load(), slot.peak.load(), slot.guaranteed.load(), slot.maximum.load(),
                     slot.asked_bytes.load(), slot.times_asked.load(), slot.job_limit.load()});
  }
  return found;
}

void write_name(LedgerSlot& slot, std::string_view name, std::string_view job) {
  write_text(slot.name, name);
  write_text(slot.job_name, job);
}

std::uint64_t job_key(std::string_view job) {
  if (job.empty()) return 0;
  std::uint64_t key = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char each : job) key = (key ^ static_cast<unsigned char>(each)) * 0x100000001b3ULL;
  return key == 0 ? 1 : key;
}

}  // namespace tensormem

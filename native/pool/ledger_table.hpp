// Owns: the file behind a budget of several processes: its layout, what is checked before it is believed, and which
// participants live. A participant holds a lock on its byte of the file; the kernel drops it however the process ends.
//   Nothing is kept twice: what all use together is the sum over the slots, so a process that dies between two stores
//   leaves nothing that does not add up. Whoever finds a slot whose lock is free empties it, holding that lock.
// Must not know: who may claim how much, callbacks. Other processes can write what they like: every number is taken as
// it is, sums saturate, and nothing read from the file is ever an address or an index.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/status.hpp"
#include "base/wait.hpp"
#include "pool/fair_share.hpp"

namespace tensormem {

inline constexpr std::size_t kLedgerNameWords = 8;
inline constexpr std::size_t kLedgerNameBytes = kLedgerNameWords * 8;
inline constexpr std::size_t kLedgerJobWords = 4;
inline constexpr std::size_t kLedgerJobBytes = kLedgerJobWords * 8;

struct alignas(64) LedgerHeader {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint32_t> slot_count;
  std::atomic<std::uint64_t> limit;
  std::atomic<std::uint32_t> width;  // no slot from here on is taken; changed by who holds the lock of the terms
  alignas(64) std::atomic<std::uint32_t> changes;  // goes up when memory came back or an ask was answered
};

struct alignas(256) LedgerSlot {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint64_t> used;
  std::atomic<std::uint64_t> wanted;  // a claim being decided; counts for everybody else
  std::atomic<std::uint64_t> guaranteed;
  std::atomic<std::uint64_t> maximum;
  std::atomic<std::uint32_t> priority;
  std::atomic<std::uint32_t> listens;      // LedgerListens, together
  std::atomic<std::uint64_t> asked_bytes;  // what others want back and nobody has answered yet
  std::atomic<std::uint64_t> asked_idle;   // the same of what nobody uses
  std::atomic<std::uint32_t> ask_serial;   // goes up with every ask
  std::atomic<std::uint32_t> answered;     // the serial that has been answered
  std::atomic<std::uint64_t> times_asked;
  std::atomic<std::uint64_t> peak;
  std::atomic<std::uint64_t> job;        // the key of its job, 0 for none
  std::atomic<std::uint64_t> job_limit;  // what all of its job may use together
  std::array<std::atomic<std::uint64_t>, kLedgerNameWords> name;
  std::array<std::atomic<std::uint64_t>, kLedgerJobWords> job_name;
};
static_assert(sizeof(LedgerSlot) == 256);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

enum LedgerListens : std::uint32_t { kGivesIdle = 1, kEvicts = 2 };

struct Participant {
  std::string name;
  std::string job;
  std::uint32_t pid = 0;
  std::uint32_t priority = 0;
  std::uint64_t used = 0;
  std::uint64_t peak = 0;
  std::uint64_t guaranteed = 0;
  std::uint64_t maximum = 0;
  std::uint64_t asked_bytes = 0;
  std::uint64_t times_asked = 0;
  std::uint64_t job_limit = 0;
};

class LedgerTable {
 public:
  // More than a node has processes. The file is sparse: only slots that were taken once have memory.
  static constexpr std::size_t kSlots = 65'536;

  // A new file: for its owner alone, of a size that nobody can change.
  static Status create(std::uint64_t limit, std::shared_ptr<LedgerTable>* table);
  // Somebody else's, checked. The descriptor stays the caller's.
  static Status attach(int fd, std::shared_ptr<LedgerTable>* table);
  ~LedgerTable();
  LedgerTable(const LedgerTable&) = delete;
  LedgerTable& operator=(const LedgerTable&) = delete;

  LedgerHeader& header() { return *header_; }
  LedgerSlot& slot(std::size_t index) { return slots_[index]; }
  // All slots that anybody is in are below.
  std::size_t width() const { return std::min<std::size_t>(header_->width.load(), kSlots); }
  // To hand over; it owns no locks.
  int fd() const { return fd_; }

  // A slot of one's own, one per table, empty and locked; nobody sees it before `joined` is set. Hold the terms' lock.
  Status take_slot(std::size_t* index);
  // Empties the slot and lets its lock go.
  void leave_slot(std::size_t index);
  // How many dead participants' shares came back.
  std::size_t reap_dead();
  // One participant at a time changes what is promised. `timed_out` when another keeps it, stopped perhaps.
  Status lock_terms(const Wait& wait);
  void unlock_terms();

  std::vector<Participant> participants();
  // What all others are guaranteed; with a job, all others of it.
  std::uint64_t guaranteed_without(std::size_t index, std::uint64_t job = 0);
  void tell_change();

  // A forked child has the parent's locks: it lets go of them at once, and can do nothing with this table afterwards.
  bool is_forked() const { return lock_fd_.load(std::memory_order_relaxed) < 0; }
  void abandon_in_child();
  // Of what is ours: the numbers in the file are anybody's.
  bool is_valid() const;

 private:
  LedgerTable() = default;
  Status check_file() const;
  Status map();
  Status check_header() const;
  void empty(LedgerSlot& slot);
  void fit_width(std::size_t taken);

  int fd_ = -1;
  std::atomic<int> lock_fd_{-1};
  // Threads share the file description, so the kernel's locks do not keep them apart.
  std::mutex reap_mutex_;
  ForkGuard fork_guard_{reap_mutex_};
  std::atomic<std::size_t> own_slot_{kSlots};
  LedgerHeader* header_ = nullptr;
  LedgerSlot* slots_ = nullptr;
  std::uint64_t address_ = 0;
};

using LedgerTablePtr = std::shared_ptr<LedgerTable>;

void write_name(LedgerSlot& slot, std::string_view name, std::string_view job);
// What jobs are told apart by; 0 for none.
std::uint64_t job_key(std::string_view job);

}  // namespace tensormem

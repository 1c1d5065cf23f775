// Owns: recording, process-wide: the rings of all threads, and the thread that drains them to a file every flush
// interval, or sooner when a ring is half full. That thread never takes the GIL. One recording at a time.
//  - A thread whose ring is full waits up to a tenth of a second for room; then events are dropped, and counted.
//  - A process that is killed loses what it reported since the last flush; the file stays readable.
//  - A forked child records nothing and leaves its parent's file alone, until it starts a recording of its own.
// Must not know: Python, or what the numbers in events mean.
#pragma once

#include <semaphore.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/status.hpp"
#include "trace/definitions.hpp"
#include "trace/reporters.hpp"
#include "trace/ring.hpp"
#include "trace/running_peaks.hpp"
#include "trace/running_totals.hpp"
#include "trace/tick_scale.hpp"
#include "trace/writer.hpp"

namespace tensormem {

struct RecorderOptions {
  std::string path;
  bool overwrite = false;
  bool stacks = false;
  std::uint64_t flush_interval_ns = 50'000'000;
  int failure_fd = -1;  // where the first failure to write is told at once, in a line; -1: nowhere
};

struct RecorderReport {
  std::uint64_t events = 0;
  std::uint64_t dropped = 0;
  std::uint64_t nbytes = 0;  // of the file
  std::uint64_t duration_ns = 0;
};

class TraceRecorder {
 public:
  using StackFunction = std::uint32_t (*)() noexcept;

  static TraceRecorder& instance();

  Status start(const RecorderOptions& options) noexcept;
  // Everything reported before is in the file, which is closed. The failure is that of the first write that failed.
  Status stop(RecorderReport* report) noexcept;
  // For a process that is about to end without its exit handlers: the thread that drains closes the file, and the
  // caller waits for that, but not for longer than `most_ns`: it may be a signal handler that interrupted anything.
  void finish_at_exit(std::uint64_t most_ns) noexcept;
  // Everything reported before by this thread is in the file.
  Status flush() noexcept;
  RecorderReport report() const noexcept;
  // How many recordings were started: numbers defined for one mean nothing in the next.
  std::uint32_t session() const noexcept { return session_.load(std::memory_order_acquire); }

  // Who captures stacks, once per process; also when a recording with stacks has begun. Called on the thread that
  // reports.
  void install_stacks(StackFunction capture) noexcept;
  std::uint32_t stack() const noexcept {
    const StackFunction capture = active_capture_.load(std::memory_order_acquire);
    return capture == nullptr ? 0 : capture();
  }
  void define(const Reporter& reporter) noexcept;
  void define(DefinitionKind kind, std::uint32_t id, std::span<const std::uint32_t> numbers,
              std::initializer_list<std::string_view> texts) noexcept;

  // The calling thread's ring, made now; null when there is no memory for one.
  TraceRing* make_ring() noexcept;
  // Wakes the thread that drains.
  void wake() noexcept { sem_post(&wake_); }
  bool push_patiently(TraceRing* ring, const TraceEvent& event) noexcept;
  // From a thread whose ring is gone because the thread is ending, or which has no memory for one.
  void record_late(const TraceEvent& event) noexcept;
  void count_lost() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  // A thread is ending: its ring goes when it is empty.
  void close_ring(TraceRing* ring) noexcept;

 private:
  static constexpr std::uint64_t kChunkEvents = 8192;
  static constexpr std::uint64_t kLateEvents = 4096;
  static constexpr std::uint64_t kMostPatience_ns = 100'000'000;
  static constexpr std::uint64_t kTotalsInterval_ns = 1'000'000'000;

  TraceRecorder();
  static void after_fork_in_child() noexcept;
  void run() noexcept;
  Status start_locked(const RecorderOptions& options);
  void stop_thread() noexcept;
  Status finish_locked(RecorderReport* report);

  // With `draining_`.
  void drain() noexcept;
  void drain_rings();
  std::uint64_t convert(std::uint64_t count, ChunkHeader* chunk) noexcept;
  void write_events(std::uint64_t count, std::uint32_t thread) noexcept;
  void write_definitions();
  void write_totals();
  void write_peaks(const PeakEntry* entries, std::size_t count) noexcept;
  void advance_peaks(std::uint64_t ticks);
  void write_resident_bytes() noexcept;
  void write(const ChunkHeader& chunk, const void* payload, std::uint64_t nbytes) noexcept;
  void tell_failure() noexcept;
  void remove_closed_rings();
  std::uint64_t dropped() const noexcept;

  sem_t wake_;
  sem_t finished_;
  std::atomic<std::uint32_t> session_{0};
  std::atomic<StackFunction> capture_{nullptr};
  std::atomic<StackFunction> active_capture_{nullptr};
  std::atomic<std::uint64_t> lost_{0};  // events that had no ring, or met a full disk
  std::atomic<bool> stacks_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> exiting_{false};
  std::atomic<pid_t> process_{0};  // which records

  // Locks from the inside out: what is taken inside another is older (see ForkGuard).
  mutable std::mutex defining_;
  ForkGuard defining_guard_{defining_};
  Definitions definitions_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spaces_;  // of resources that are news

  mutable std::mutex listing_;
  ForkGuard listing_guard_{listing_};
  std::vector<std::unique_ptr<TraceRing>> rings_;
  std::uint64_t dropped_before_ = 0;  // by rings that are gone

  std::mutex recording_late_;
  ForkGuard recording_late_guard_{recording_late_};
  TraceRing* late_ring_ = nullptr;  // one of `rings_`, which is never closed

  mutable std::mutex draining_;  // guards everything below; held over the file
  ForkGuard draining_guard_{draining_};
  TraceWriter writer_;
  TickScale scale_;
  std::uint64_t start_ticks_ = 0;
  std::uint64_t interval_ns_ = 0;
  std::vector<TraceEvent> buffer_;
  RunningTotals totals_;
  RunningPeaks peaks_;
  std::uint64_t totals_due_ns_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t resident_ = 0;
  std::uint32_t tags_written_ = 0;
  std::uint32_t resident_tag_ = 0;
  Status first_failure_;
  int failure_fd_ = -1;

  mutable std::mutex controlling_;  // one start or stop at a time; outside all others
  ForkGuard controlling_guard_{controlling_};
  std::unique_ptr<std::thread> thread_;
};

}  // namespace tensormem

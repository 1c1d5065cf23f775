#include "trace/recorder.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <system_error>

#include "base/interned.hpp"
#include "trace/inside.hpp"
#include "trace/record.hpp"
#include "trace/unseen.hpp"

namespace tensormem {

std::atomic<bool> g_trace_on{false};
const bool kTraceUsesCounter = counter_is_invariant();

namespace {

thread_local TraceRing* t_ring = nullptr;
thread_local std::uint8_t t_depth = 0;
thread_local std::uint32_t t_unseen = 0;
thread_local bool t_ended = false;
thread_local std::uint32_t t_held_stack = 0;

// Its end is the thread's.
struct RingHolder {
  ~RingHolder() {
    TraceRing* ring = t_ring;
    t_ring = nullptr;
    t_ended = true;
    if (ring != nullptr) TraceRecorder::instance().close_ring(ring);
  }
  bool is_touched = false;
};
thread_local RingHolder t_holder;

// Made when the library is loaded: locks that are taken inside others must be older than those.
const bool g_made_early = (TraceRecorder::instance(), true);

timespec after(std::uint64_t nanoseconds) noexcept {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  const std::uint64_t sum = static_cast<std::uint64_t>(until.tv_nsec) + nanoseconds;
  until.tv_sec += static_cast<time_t>(sum / 1'000'000'000);
  until.tv_nsec = static_cast<long>(sum % 1'000'000'000);
  return until;
}

Status no_memory() { return Status::fail(Code::out_of_memory, "no memory to record with", sizeof(TraceEvent)); }

}  // namespace

// ---- What reports ---------------------------------------------------------------------------------------------------

void trace_record_at(const TraceEvent& event) noexcept {
  TraceRing* ring = t_ring;
  if (ring == nullptr) [[unlikely]]
    ring = TraceRecorder::instance().make_ring();
  if (ring == nullptr) [[unlikely]]
    return TraceRecorder::instance().record_late(event);
  if (!ring->push(event) && !TraceRecorder::instance().push_patiently(ring, event)) [[unlikely]]
    return ring->count_dropped();
  if (ring->has_filled_half()) [[unlikely]] {
    ring->is_patient = true;
    TraceRecorder::instance().wake();
  }
}

std::uint32_t trace_stack() noexcept { return t_held_stack != 0 ? t_held_stack : TraceRecorder::instance().stack(); }
void trace_hold_stack() noexcept {
  if (trace_is_on()) [[unlikely]]
    t_held_stack = TraceRecorder::instance().stack();
}
void trace_drop_stack() noexcept { t_held_stack = 0; }

TraceNesting::TraceNesting() noexcept : depth_(t_depth) {
  if (t_depth < 255) ++t_depth;
}
TraceNesting::~TraceNesting() { t_depth = depth_; }

TraceInside::TraceInside() noexcept : before_(t_depth) { t_depth = std::max<std::uint8_t>(t_depth, 1); }
TraceInside::~TraceInside() { t_depth = before_; }

TraceUnseen::TraceUnseen() noexcept { ++t_unseen; }
TraceUnseen::~TraceUnseen() { --t_unseen; }
bool TraceUnseen::is_on() noexcept { return t_unseen != 0; }

TraceRing* TraceRecorder::make_ring() noexcept {
  if (t_ended) return nullptr;
  const TraceUnseen unseen;
  try {
    const auto number = static_cast<std::uint32_t>(syscall(SYS_gettid));
    auto ring = std::make_unique<TraceRing>(number);
    char name[16] = {};
    (void)pthread_getname_np(pthread_self(), name, sizeof name);
    define(DefinitionKind::thread, number, {}, {name});
    const std::lock_guard lock(listing_);
    rings_.push_back(std::move(ring));
    t_ring = rings_.back().get();
    t_holder.is_touched = true;  // from here on its destructor will run
    return t_ring;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void TraceRecorder::record_late(const TraceEvent& event) noexcept {
  const TraceUnseen unseen;
  try {
    const std::lock_guard late(recording_late_);
    if (late_ring_ == nullptr) {
      auto ring = std::make_unique<TraceRing>(0, kLateEvents);
      const std::lock_guard lock(listing_);
      rings_.push_back(std::move(ring));
      late_ring_ = rings_.back().get();
    }
    if (!late_ring_->push(event)) late_ring_->count_dropped();
  } catch (const std::bad_alloc&) {
    count_lost();
  }
}

bool TraceRecorder::push_patiently(TraceRing* ring, const TraceEvent& event) noexcept {
  if (!ring->is_patient) return false;
  const std::uint64_t give_up = monotonic_ns() + kMostPatience_ns;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 20'000};
  wake();
  while (trace_is_on() && monotonic_ns() < give_up) {
    (void)nanosleep(&kPause, nullptr);
    if (ring->push(event)) return true;
  }
  ring->is_patient = false;
  return false;
}

void TraceRecorder::close_ring(TraceRing* ring) noexcept {
  ring->close();
  // Nobody drains when nobody records.
  if (!trace_is_on() && draining_.try_lock()) {
    const std::lock_guard lock(draining_, std::adopt_lock);
    if (!writer_.is_open()) remove_closed_rings();
  }
}

void TraceRecorder::define(DefinitionKind kind, std::uint32_t id, std::span<const std::uint32_t> numbers,
                           std::initializer_list<std::string_view> texts) noexcept {
  const TraceUnseen unseen;
  try {
    const std::lock_guard lock(defining_);
    definitions_.add(kind, id, numbers, texts);
  } catch (const std::bad_alloc&) {
    // Readers show the number instead.
  }
}

void TraceRecorder::define(const Reporter& reporter) noexcept {
  const TraceUnseen unseen;
  const std::uint32_t space = intern_tag(reporter.space);
  try {
    const std::lock_guard lock(defining_);
    spaces_.emplace_back(reporter.id, space);
  } catch (const std::bad_alloc&) {
    // Its blocks count for the whole and for their tags.
  }
  const std::uint32_t numbers[] = {reporter.below, reporter.is_foreign ? 1U : 0U};
  define(DefinitionKind::resource, reporter.id, numbers, {reporter.name, reporter.space});
}

// ---- A recording ----------------------------------------------------------------------------------------------------

TraceRecorder::TraceRecorder() {
  sem_init(&wake_, 0, 0);
  sem_init(&finished_, 0, 0);
  pthread_atfork(nullptr, nullptr, &after_fork_in_child);
}

TraceRecorder& TraceRecorder::instance() {
  // Never destroyed: threads may report until the very end.
  static TraceRecorder* const recorder = [] {
    (void)tag_count();
    prepare_reporters();
    return new TraceRecorder;
  }();
  return *recorder;
}

// The thread that drains is not here, and the file is the parent's. Every lock is free: nobody else is left.
void TraceRecorder::after_fork_in_child() noexcept {
  TraceRecorder& self = instance();
  g_trace_on.store(false, std::memory_order_relaxed);
  self.stacks_.store(false, std::memory_order_relaxed);
  self.active_capture_.store(nullptr, std::memory_order_relaxed);
  self.writer_.abandon();
  (void)self.thread_.release();  // neither joined nor detached: there is no such thread
  self.late_ring_ = nullptr;
  std::erase_if(self.rings_, [](const auto& ring) { return ring.get() != t_ring; });
  if (t_ring != nullptr) t_ring->set_thread(static_cast<std::uint32_t>(syscall(SYS_gettid)));
}

void TraceRecorder::install_stacks(StackFunction capture) noexcept {
  capture_.store(capture, std::memory_order_release);
  if (stacks_.load(std::memory_order_acquire)) active_capture_.store(capture, std::memory_order_release);
}

Status TraceRecorder::start(const RecorderOptions& options) noexcept {
  const TraceUnseen unseen;
  const std::lock_guard control(controlling_);
  if (thread_ != nullptr) return Status::fail(Code::invalid_argument, "this process records a trace already");
  try {
    TM_TRY(start_locked(options));
    static const int registered = std::atexit([] {
      RecorderReport report;
      (void)instance().stop(&report).ok();
    });
    (void)registered;
    stopping_.store(false, std::memory_order_release);
    exiting_.store(false, std::memory_order_release);
    process_.store(getpid(), std::memory_order_relaxed);
    // It must not be the one that gets the process's signals.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::make_unique<std::thread>([this] { run(); });
    } catch (const std::system_error& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      g_trace_on.store(false, std::memory_order_relaxed);
      const std::lock_guard lock(draining_);
      writer_.abandon();
      return Status::driver_error(error.code().value(), "pthread_create");
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  return {};
}

Status TraceRecorder::start_locked(const RecorderOptions& options) {
  const std::lock_guard lock(draining_);
  buffer_.resize(kChunkEvents);
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  scale_.start();
  start_ticks_ = trace_ticks();
  const TraceFileHeader header{.flags = options.stacks ? 1U : 0U,
                               .pid = static_cast<std::uint64_t>(getpid()),
                               .wall_ns = wall.tv_sec * 1'000'000'000 + wall.tv_nsec,
                               .monotonic_ns = scale_.start_ns()};
  TM_TRY(writer_.open(options.path, options.overwrite, header));
  totals_.clear();
  peaks_.clear();
  totals_due_ns_ = kTotalsInterval_ns;
  interval_ns_ = options.flush_interval_ns;
  events_ = resident_ = 0;
  tags_written_ = 0;
  resident_tag_ = intern_tag("process.resident_bytes");
  first_failure_ = Status();
  failure_fd_ = options.failure_fd;
  lost_.store(0, std::memory_order_relaxed);
  {
    const std::lock_guard listing(listing_);
    const std::lock_guard defining(defining_);
    definitions_ = Definitions();
    spaces_.clear();
    dropped_before_ = 0;
    std::erase_if(rings_, [](const auto& ring) { return ring->is_closed(); });
    for (const auto& ring : rings_) {
      ring->discard();
      dropped_before_ -= ring->dropped();  // so that the sum begins at 0
      definitions_.add(DefinitionKind::thread, ring->thread(), {}, {});
    }
  }
  session_.fetch_add(1, std::memory_order_acq_rel);
  stacks_.store(options.stacks, std::memory_order_release);
  active_capture_.store(options.stacks ? capture_.load(std::memory_order_acquire) : nullptr, std::memory_order_release);
  g_trace_on.store(true, std::memory_order_release);
  // Those made meanwhile are defined twice.
  for (const Reporter& reporter : all_reporters()) define(reporter);
  drain();
  return {};
}

Status TraceRecorder::stop(RecorderReport* report) noexcept {
  const TraceUnseen unseen;
  const std::lock_guard control(controlling_);
  if (thread_ == nullptr) return Status::fail(Code::invalid_argument, "this process records no trace");
  g_trace_on.store(false, std::memory_order_release);
  stacks_.store(false, std::memory_order_release);
  active_capture_.store(nullptr, std::memory_order_release);
  stop_thread();
  const std::lock_guard lock(draining_);
  Status finished = finish_locked(report);
  remove_closed_rings();
  return finished;
}

Status TraceRecorder::finish_locked(RecorderReport* report) {
  drain();
  advance_peaks(~0ULL);
  write_totals();
  const EndRecord end{.events = events_, .dropped = dropped(), .duration_ns = scale_.now_ns()};
  Status finished = writer_.finish(end);
  if (first_failure_.ok()) first_failure_ = std::move(finished);
  *report = {
      .events = events_, .dropped = end.dropped, .nbytes = writer_.bytes_written(), .duration_ns = end.duration_ns};
  return std::move(first_failure_);
}

void TraceRecorder::finish_at_exit(std::uint64_t most_ns) noexcept {
  // A child of vfork has its parent's memory, and must not end its parent's recording.
  if (process_.load(std::memory_order_relaxed) != getpid() || !g_trace_on.exchange(false)) return;
  active_capture_.store(nullptr, std::memory_order_release);
  exiting_.store(true, std::memory_order_release);
  wake();
  const timespec until = after(most_ns);
  while (sem_timedwait(&finished_, &until) == -1 && errno == EINTR) {
  }
}

void TraceRecorder::stop_thread() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake();
  thread_->join();
  thread_.reset();
}

Status TraceRecorder::flush() noexcept {
  const TraceUnseen unseen;
  const std::lock_guard lock(draining_);
  if (!writer_.is_open()) return Status::fail(Code::invalid_argument, "this process records no trace");
  drain();
  return {};
}

RecorderReport TraceRecorder::report() const noexcept {
  const std::lock_guard lock(draining_);
  return {.events = events_,
          .dropped = dropped(),
          .nbytes = writer_.bytes_written(),
          .duration_ns = writer_.is_open() ? monotonic_ns() - scale_.start_ns() : scale_.now_ns()};
}

void TraceRecorder::run() noexcept {
  const TraceUnseen unseen;
  pthread_setname_np(pthread_self(), "tensormem-trace");
  while (!stopping_.load(std::memory_order_acquire)) {
    const timespec until = after(interval_ns_);
    while (sem_timedwait(&wake_, &until) == -1 && errno == EINTR) {
    }
    const std::lock_guard lock(draining_);
    if (!writer_.is_open()) continue;
    if (!exiting_.load(std::memory_order_acquire)) {
      drain();
      continue;
    }
    RecorderReport report;
    (void)finish_locked(&report).ok();
    sem_post(&finished_);
  }
}

}  // namespace tensormem

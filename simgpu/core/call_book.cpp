#include "core/call_book.hpp"

#include <chrono>
#include <cstdio>
#include <thread>

#include "trace/clock.hpp"

namespace simgpu {

namespace {

thread_local std::uint64_t t_work_nanoseconds = 0;

// The processor's counter where it can be trusted: the clock should cost its clients little.
std::uint64_t ticks() {
#if defined(__x86_64__)
  static const bool has_counter = tensormem::counter_is_invariant();
  if (has_counter) return __rdtsc();
#endif
  return tensormem::monotonic_ns();
}

std::uint64_t planned_for(const std::map<std::string, std::uint64_t>& delays, const char* function) {
  if (delays.empty()) return 0;
  const auto found = delays.find(function);
  return found == delays.end() ? 0 : found->second;
}

void plan_delay(std::map<std::string, std::uint64_t>& delays, const std::string& function, std::uint64_t nanoseconds) {
  if (nanoseconds == 0) {
    delays.erase(function);
  } else {
    delays[function] = nanoseconds;
  }
}

}  // namespace

std::uint64_t CallBook::work_nanoseconds() { return t_work_nanoseconds; }

CallBook& call_book() {
  static CallBook* const book = new CallBook;  // never destroyed: calls may come at the very end of the process
  return *book;
}

CallBook::CallBook() : first_ticks_(ticks()), first_ns_(tensormem::monotonic_ns()) {}

std::uint64_t CallBook::nanoseconds() const {
  const auto passed = static_cast<double>(tensormem::monotonic_ns() - first_ns_);
  const std::uint64_t ticked = ticks() - first_ticks_;
  if (ticked == 0) return 0;
  static const double unseen = unseen_ticks();
  const auto seen = static_cast<double>(inside_.load(std::memory_order_relaxed));
  const auto calls = [this] {
    const std::lock_guard lock(mutex_);
    return static_cast<double>(next_ - 1);
  }();
  return static_cast<std::uint64_t>((seen + calls * unseen) * (passed / static_cast<double>(ticked)));
}

// Empty calls on a book of their own. The least of several rounds: whatever disturbs one adds to it.
double CallBook::unseen_ticks() {
  constexpr int kRounds = 20;
  constexpr int kCalls = 500;
  double least = 0;
  for (int round = 0; round < kRounds; ++round) {
    CallBook book;
    const std::uint64_t began = ticks();
    for (int call = 0; call < kCalls; ++call) {
      Ticket ticket;
      book.end(ticket, book.begin("", {}, &ticket));
    }
    const auto unseen = static_cast<double>(ticks() - began - book.inside_.load(std::memory_order_relaxed)) / kCalls;
    if (round == 0 || unseen < least) least = unseen;
  }
  return least;
}

Result CallBook::begin(const char* function, std::initializer_list<std::uint64_t> arguments, Ticket* ticket) {
  ticket->began = ticks();
  std::uint64_t nanoseconds = 0;
  Result planned = kSuccess;
  {
    std::unique_lock lock(mutex_);
    Entry entry;
    entry.function = function;
    for (const std::uint64_t argument : arguments) entry.arguments[entry.count++] = argument;
    ticket->number = next_++;
    entries_.push_back(entry);
    if (entries_.size() > kKept) entries_.pop_front();
    if (const auto known = counts_.find(function); known != counts_.end()) {
      known->second += 1;
    } else {
      counts_.emplace(function, 1);
    }
    all_ += 1;
    nanoseconds = planned_for(delays_, function);
    t_work_nanoseconds = planned_for(work_delays_, function);
    if (fault_.remaining != 0 && (fault_.function == "*" || fault_.function == function) && --fault_.remaining == 0) {
      planned = fault_.result;
      fired_ = true;
    }
    if (hold_.function == function) wait_while_held(lock, function);
  }
  if (nanoseconds != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
  return planned;
}

void CallBook::end(const Ticket& ticket, Result result) {
  t_work_nanoseconds = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t age = next_ - ticket.number;
    if (age <= entries_.size()) entries_[entries_.size() - age].result = result;
  }
  inside_.fetch_add(ticks() - ticket.began, std::memory_order_relaxed);
}

void CallBook::fail(const std::string& function, std::uint64_t nth, Result result) {
  const std::lock_guard lock(mutex_);
  fault_ = Fault{function, nth, result};
  fired_ = false;
}

void CallBook::delay(const std::string& function, std::uint64_t nanoseconds) {
  const std::lock_guard lock(mutex_);
  plan_delay(delays_, function, nanoseconds);
}

void CallBook::delay_work(const std::string& function, std::uint64_t nanoseconds) {
  const std::lock_guard lock(mutex_);
  plan_delay(work_delays_, function, nanoseconds);
}

void CallBook::wait_while_held(std::unique_lock<std::mutex>& lock, const char* function) {
  hold_.waiting += 1;
  held_.notify_all();
  const bool let_go = let_go_.wait_for(lock, std::chrono::nanoseconds(hold_.nanoseconds),
                                       [&] { return hold_.permits != 0 || hold_.function != function; });
  if (hold_.permits != 0) {
    hold_.permits -= 1;
  } else if (!let_go) {
    hold_ = Hold{"", 0, 0, 0, hold_.missed + 1};  // nobody lets go: the others need not wait for it
    let_go_.notify_all();
  }
}

void CallBook::hold(const std::string& function, std::uint64_t nanoseconds) {
  const std::lock_guard lock(mutex_);
  hold_ = Hold{function, nanoseconds, 0, 0, hold_.missed};
  let_go_.notify_all();
}

bool CallBook::wait_until_held(std::uint64_t nanoseconds) {
  std::unique_lock lock(mutex_);
  return held_.wait_for(lock, std::chrono::nanoseconds(nanoseconds), [&] { return hold_.waiting != 0; });
}

void CallBook::let_go() {
  const std::lock_guard lock(mutex_);
  if (hold_.waiting == 0) return;
  hold_.waiting -= 1;
  hold_.permits += 1;
  let_go_.notify_all();
}

std::uint64_t CallBook::missed() const {
  const std::lock_guard lock(mutex_);
  return hold_.missed;
}

void CallBook::clear_plan() {
  const std::lock_guard lock(mutex_);
  fault_ = Fault{};
  fired_ = false;
  delays_.clear();
  work_delays_.clear();
  hold_ = Hold{};
  let_go_.notify_all();
}

bool CallBook::has_fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

std::uint64_t CallBook::count(const std::string& function) const {
  const std::lock_guard lock(mutex_);
  if (function == "*") return all_;
  const auto found = counts_.find(function);
  return found == counts_.end() ? 0 : found->second;
}

std::string CallBook::text() const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  std::uint64_t number = next_ - entries_.size();
  for (const Entry& entry : entries_) {
    lines += std::to_string(number++) + " " + entry.function + "(";
    for (int i = 0; i < entry.count; ++i) {
      char argument[32];
      std::snprintf(argument, sizeof argument, "%s0x%llx", i == 0 ? "" : ", ",
                    static_cast<unsigned long long>(entry.arguments[i]));
      lines += argument;
    }
    lines += ") -> " + std::to_string(entry.result) + "\n";
  }
  return lines;
}

void CallBook::forget() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  counts_.clear();
  all_ = 0;
}

}  // namespace simgpu

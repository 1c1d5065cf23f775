// Owns: what was called: how often each function, the latest calls in order with their numbers and answers, and the
// plan by which a call fails or takes long. One for the process; outlives the simulated machines.
// Must not know: what the functions do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>

#include "core/results.hpp"

namespace simgpu {

class CallBook {
 public:
  struct Ticket {
    std::uint64_t number = 0;
    std::uint64_t began = 0;
  };

  CallBook();
  // Notes the call; the answer the plan wants it to give, or success to go ahead. Sleeps when the plan says so.
  Result begin(const char* function, std::initializer_list<std::uint64_t> arguments, Ticket* ticket);
  void end(const Ticket& ticket, Result result);

  // Fail the `nth` call from now on (1 is the next) of `function` ("*": of any) with `result`, once.
  void fail(const std::string& function, std::uint64_t nth, Result result);
  // Every call of `function` takes this long; 0 ends it.
  void delay(const std::string& function, std::uint64_t nanoseconds);
  // The work that `function` puts on a stream takes this long there; the call itself does not. 0 ends it.
  void delay_work(const std::string& function, std::uint64_t nanoseconds);
  // Every call of `function` waits until it is let go, or so long; empty ends it and lets all of them go.
  void hold(const std::string& function, std::uint64_t nanoseconds);
  // Waits until a call is held, so long at the most; whether one is.
  bool wait_until_held(std::uint64_t nanoseconds);
  void let_go();
  // How many calls were not let go in time.
  std::uint64_t missed() const;
  // What the call that this thread is serving wants its work to take.
  static std::uint64_t work_nanoseconds();
  void clear_plan();
  bool has_fired() const;

  std::uint64_t count(const std::string& function) const;
  // How long all calls took so far, of all threads together: what a client's own time is not. The way to the clock and
  // back is in it, too: about so much per call as it takes on this machine, measured when first asked.
  std::uint64_t nanoseconds() const;
  // The latest calls, one line each: number, function, arguments, answer.
  std::string text() const;
  void forget();

 private:
  static constexpr std::size_t kKept = 20000;
  struct Entry {
    const char* function = "";
    std::uint64_t arguments[6] = {};
    int count = 0;
    int result = -1;
  };
  struct Fault {
    std::string function;
    std::uint64_t remaining = 0;
    Result result = kSuccess;
  };

  struct Hold {
    std::string function;
    std::uint64_t nanoseconds = 0;
    std::uint64_t waiting = 0;  // calls that no permit was given for yet
    std::uint64_t permits = 0;
    std::uint64_t missed = 0;
  };

  // With the lock.
  void wait_while_held(std::unique_lock<std::mutex>& lock, const char* function);
  // Ticks of a call that its own two looks at the clock do not see.
  static double unseen_ticks();

  const std::uint64_t first_ticks_;
  const std::uint64_t first_ns_;
  std::atomic<std::uint64_t> inside_{0};  // ticks
  mutable std::mutex mutex_;
  std::uint64_t next_ = 1;
  std::deque<Entry> entries_;
  std::map<std::string, std::uint64_t, std::less<>> counts_;  // found without making a string
  std::uint64_t all_ = 0;
  std::map<std::string, std::uint64_t> delays_;
  std::map<std::string, std::uint64_t> work_delays_;
  Fault fault_;
  Hold hold_;
  std::condition_variable held_;
  std::condition_variable let_go_;
  bool fired_ = false;
};

CallBook& call_book();

}  // namespace simgpu

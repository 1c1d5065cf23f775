#include "core/call_book.hpp"

#include <chrono>
#include <cstdio>
#include <thread>

namespace simgpu {

CallBook& call_book() {
  static CallBook* const book = new CallBook;  // never destroyed: calls may come at the very end of the process
  return *book;
}

Result CallBook::begin(const char* function, std::initializer_list<std::uint64_t> arguments, std::uint64_t* ticket) {
  std::uint64_t nanoseconds = 0;
  Result planned = kSuccess;
  {
    const std::lock_guard lock(mutex_);
    Entry entry;
    entry.function = function;
    for (const std::uint64_t argument : arguments) entry.arguments[entry.count++] = argument;
    *ticket = next_++;
    entries_.push_back(entry);
    if (entries_.size() > kKept) entries_.pop_front();
    counts_[function] += 1;
    counts_["*"] += 1;
    if (const auto found = delays_.find(function); found != delays_.end()) nanoseconds = found->second;
    if (fault_.remaining != 0 && (fault_.function == "*" || fault_.function == function) && --fault_.remaining == 0) {
      planned = fault_.result;
      fired_ = true;
    }
  }
  if (nanoseconds != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
  return planned;
}

void CallBook::end(std::uint64_t ticket, Result result) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t age = next_ - ticket;
  if (age <= entries_.size()) entries_[entries_.size() - age].result = result;
}

void CallBook::fail(const std::string& function, std::uint64_t nth, Result result) {
  const std::lock_guard lock(mutex_);
  fault_ = Fault{function, nth, result};
  fired_ = false;
}

void CallBook::delay(const std::string& function, std::uint64_t nanoseconds) {
  const std::lock_guard lock(mutex_);
  if (nanoseconds == 0) {
    delays_.erase(function);
  } else {
    delays_[function] = nanoseconds;
  }
}

void CallBook::clear_plan() {
  const std::lock_guard lock(mutex_);
  fault_ = Fault{};
  fired_ = false;
  delays_.clear();
}

bool CallBook::has_fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

std::uint64_t CallBook::count(const std::string& function) const {
  const std::lock_guard lock(mutex_);
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
}

}  // namespace simgpu

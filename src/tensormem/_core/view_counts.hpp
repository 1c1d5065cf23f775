// Owns: how many views of which length are out. Taking one back runs no Python, so that the garbage collector may do it
// in the middle of anything.
// Must not know: what the views show.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace tensormem {

class ViewCounts {
 public:
  // May throw bad_alloc.
  void add(std::uint64_t nbytes) {
    const std::lock_guard lock(mutex_);
    ++counts_[nbytes];
  }
  void remove(std::uint64_t nbytes) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(nbytes);
    if (found != counts_.end() && --found->second == 0) counts_.erase(found);
  }
  std::uint64_t longest() const noexcept {
    const std::lock_guard lock(mutex_);
    return counts_.empty() ? 0 : counts_.rbegin()->first;
  }
  std::uint64_t count() const noexcept {
    const std::lock_guard lock(mutex_);
    std::uint64_t views = 0;
    for (const auto& [nbytes, count] : counts_) views += count;
    return views;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> counts_;
};

}  // namespace tensormem

// Owns: blocks that were given back while streams still use them, oldest first; each with what it waits for.
// What is not proven done stays: a failed query keeps its block and is told, and never frees.
// Must not know: how a block is freed. Guarded by the owner's lock, which is let go while a driver is asked.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "order/stream_order.hpp"

namespace tensormem {

template <typename Item>
class RetiredList {
 public:
  void push(Item item, Uses until) { entries_.emplace(next_++, Entry{std::move(item), std::move(until)}); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }

  // Numbers are given in order, and everything waits for events that there are.
  bool is_valid() const {
    for (const auto& [number, entry] : entries_) {
      if (number >= next_) return false;
      for (const Use& use : entry.until) {
        if (!use.event) return false;
      }
    }
    return true;
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, entry] : entries_) visit(entry.item);
  }

  // Everything that the items wait for.
  void append_awaited(Uses* until) const {
    for (const auto& [number, entry] : entries_) until->insert(until->end(), entry.until.begin(), entry.until.end());
  }

  // Moves every item that is proven done to `done`, of those that were not looked at for longest, `most` at the most.
  // Returns the first failed query, after looking at all of them. For owners whose lock may be held over a query.
  template <typename Container>
  Status take_done(StreamOrder& order, Container* done, std::size_t most = kAll) {
    struct NoLock {
      void lock() {}
      void unlock() {}
    } none;
    return take_done(order, none, done, most);
  }

  // The same, and the owner's lock is not held while the driver is asked.
  template <typename Lock, typename Container>
  Status take_done(StreamOrder& order, Lock& lock, Container* done, std::size_t most = kAll) {
    const std::vector<Look> looks = look(most);
    std::vector<std::uint64_t> passed;
    Status first_failure;
    lock.unlock();
    for (const Look& each : looks) {
      bool is_done = false;
      Status asked = order.are_done(each.until, &is_done);
      if (!asked.ok() && first_failure.ok()) first_failure = std::move(asked);
      if (is_done) passed.push_back(each.number);
    }
    lock.lock();
    for (const std::uint64_t number : passed) {
      const auto found = entries_.find(number);
      if (found == entries_.end()) continue;  // another thread was told first
      done->push_back(std::move(found->second.item));
      entries_.erase(found);
    }
    return first_failure;
  }

  // Waits for all of them, for the end of a resource. What cannot be waited for is dropped here and never freed.
  template <typename Container>
  void wait_and_take(StreamOrder& order, Container* done) {
    for (auto& [number, entry] : entries_) {
      if (order.synchronize(entry.until).ok()) done->push_back(std::move(entry.item));
    }
    entries_.clear();
  }

 private:
  static constexpr std::size_t kAll = ~std::size_t{0};
  struct Entry {
    Item item;
    Uses until;
  };
  struct Look {
    std::uint64_t number;
    Uses until;
  };

  // Those that were not looked at for longest, which go to the end of the line.
  std::vector<Look> look(std::size_t most) {
    std::vector<Look> looks;
    for (std::size_t left = most < entries_.size() ? most : entries_.size(); left != 0; --left) {
      auto node = entries_.extract(entries_.begin());
      node.key() = next_++;
      looks.push_back({node.key(), node.mapped().until});
      entries_.insert(entries_.end(), std::move(node));
    }
    return looks;
  }

  std::map<std::uint64_t, Entry> entries_;  // by when they came, or were last looked at
  std::uint64_t next_ = 0;
};

}  // namespace tensormem

// Owns: blocks that were given back while streams still use them, oldest first; each with what it waits for.
// What is not proven done stays: a failed query keeps its block and is told, and never frees.
// Must not know: how a block is freed. Guarded by the owner's lock.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>

#include "order/stream_order.hpp"

namespace tensormem {

template <typename Item>
class RetiredList {
 public:
  void push(Item item, Uses until) { entries_.push_back({std::move(item), std::move(until)}); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Entry& entry : entries_) visit(entry.item);
  }

  // Everything that the items wait for.
  void append_awaited(Uses* until) const {
    for (const Entry& entry : entries_) until->insert(until->end(), entry.until.begin(), entry.until.end());
  }

  // Moves every item that is proven done to `done`, of those that were not looked at for longest, `most` at the most.
  // Returns the first failed query, after looking at all of them.
  template <typename Container>
  Status take_done(StreamOrder& order, Container* done, std::size_t most = ~std::size_t{0}) {
    Status first_failure;
    for (std::size_t left = std::min(most, entries_.size()); left != 0; --left) {
      Entry entry = std::move(entries_.front());
      entries_.pop_front();
      bool passed = false;
      Status asked = order.are_done(entry.until, &passed);
      if (!asked.ok() && first_failure.ok()) first_failure = std::move(asked);
      if (passed) {
        done->push_back(std::move(entry.item));
      } else {
        entries_.push_back(std::move(entry));
      }
    }
    return first_failure;
  }

  // Waits for all of them, for the end of a resource. What cannot be waited for is dropped here and never freed.
  template <typename Container>
  void wait_and_take(StreamOrder& order, Container* done) {
    for (Entry& entry : entries_) {
      if (order.synchronize(entry.until).ok()) done->push_back(std::move(entry.item));
    }
    entries_.clear();
  }

 private:
  struct Entry {
    Item item;
    Uses until;
  };
  std::deque<Entry> entries_;
};

}  // namespace tensormem

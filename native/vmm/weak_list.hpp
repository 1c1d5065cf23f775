// Owns: weak references to things that come and go, so that whoever made them can find those that are left. The list
// stays within twice the number of those alive.
// Must not know: what they are. Not thread-safe: the owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace tensormem {

template <typename T>
class WeakList {
 public:
  // May throw bad_alloc.
  void add(const std::shared_ptr<T>& thing) {
    if (things_.size() >= next_sweep_) {
      std::erase_if(things_, [](const std::weak_ptr<T>& each) { return each.expired(); });
      next_sweep_ = 2 * things_.size() + kSlack;
    }
    things_.push_back(thing);
  }
  // Those alive, oldest first. May throw bad_alloc.
  std::vector<std::shared_ptr<T>> alive() const {
    std::vector<std::shared_ptr<T>> found;
    for (const std::weak_ptr<T>& each : things_) {
      if (std::shared_ptr<T> thing = each.lock()) found.push_back(std::move(thing));
    }
    return found;
  }

  // What is gone is swept before the list has doubled.
  bool is_valid() const { return next_sweep_ >= kSlack && things_.size() <= next_sweep_; }

 private:
  static constexpr std::size_t kSlack = 64;
  std::vector<std::weak_ptr<T>> things_;
  std::size_t next_sweep_ = kSlack;
};

}  // namespace tensormem

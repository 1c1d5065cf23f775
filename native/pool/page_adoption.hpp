// Owns: pages on their way from one cache to another of the same kind. Whoever needs pages asks the members of its
// budget on its own thread; what they give up meanwhile is adopted instead of destroyed and made again. What nobody
// took is destroyed at the end. Must not know: budgets, addresses.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/driver.hpp"

namespace tensormem {

class PageAdoption {
 public:
  // Throws bad_alloc. At most `most` pages; one at a time on a thread.
  PageAdoption(Driver& driver, std::int32_t device, std::uint64_t page_bytes, std::uint64_t most)
      : driver_(driver), device_(device), page_bytes_(page_bytes), most_(most), outer_(g_current) {
    pages_.reserve(most);
    g_current = this;
  }
  ~PageAdoption() {
    g_current = outer_;
    for (const PhysicalHandle page : pages_) (void)driver_.physical_destroy(page).ok();
  }
  PageAdoption(const PageAdoption&) = delete;
  PageAdoption& operator=(const PageAdoption&) = delete;

  // Whether somebody on this thread waits for such a page, and has it now.
  static bool offer(Driver& driver, std::int32_t device, std::uint64_t page_bytes, PhysicalHandle page) noexcept {
    PageAdoption* const wanting = g_current;
    if (wanting == nullptr || &wanting->driver_ != &driver || wanting->device_ != device ||
        wanting->page_bytes_ != page_bytes || wanting->pages_.size() == wanting->most_) {
      return false;
    }
    wanting->pages_.push_back(page);
    return true;
  }
  bool take(PhysicalHandle* page) noexcept {
    if (pages_.empty()) return false;
    *page = pages_.back();
    pages_.pop_back();
    return true;
  }

 private:
  static inline thread_local PageAdoption* g_current = nullptr;

  Driver& driver_;
  const std::int32_t device_;
  const std::uint64_t page_bytes_;
  const std::uint64_t most_;
  PageAdoption* const outer_;
  std::vector<PhysicalHandle> pages_;
};

}  // namespace tensormem

// Owns: physical pages that stand behind no address: freed ones kept for reuse, and ones made ahead. A page remembers
// its home, the address it was made for: taken for that address again, it costs the system no memory area of its own.
// Above the high water, pages go back; below the low water, `step_ahead` (or a thread of its own) makes new ones.
// Must not know: which pages are mapped where.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "alloc/page_bitmap.hpp"
#include "base/fork_guard.hpp"
#include "base/lazy_array.hpp"
#include "base/status.hpp"
#include "driver/driver.hpp"
#include "pool/budget.hpp"
#include "pool/page_adoption.hpp"

namespace tensormem {

struct Page {
  static constexpr std::uint64_t kHomeless = ~0ULL;

  PhysicalHandle physical = kNoPhysical;
  std::uint64_t home = kHomeless;  // an index of a page of the range; no two pages have the same
};

struct PageCacheOptions {
  std::uint64_t low_pages = 0;       // made ahead
  std::uint64_t high_pages = ~0ULL;  // kept; more go back
  bool background = false;           // a thread keeps the low water
};

class PageCache {
 public:
  // Throws bad_alloc.
  PageCache(Driver& driver, std::int32_t device, std::uint64_t base, std::uint64_t page_bytes, std::uint64_t page_count,
            const PageCacheOptions& options, BudgetPtr budget);
  ~PageCache();
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // A page for each of `homes`, from the cache or new; all of them or none, and what was made is unmade. Calls the
  // budget and the driver: hold no lock. Pages that are nice to have are not taken from others.
  Status take(const std::vector<std::uint64_t>& homes, std::vector<Page>* pages, bool needed = true) noexcept;
  // Keeps pages up to the high water and gives back the rest; all of them while more is used than the budget allows.
  void put_back(const std::vector<Page>& pages) noexcept;
  // Gives cached pages back until at most `keep_pages` are left; says how many went.
  std::uint64_t trim(std::uint64_t keep_pages) noexcept;
  // Gives cached pages back, as many as `wanted` bytes need; says how many bytes went.
  std::uint64_t release(std::uint64_t wanted) noexcept;
  // Makes at most `most` pages if there are fewer than the low water; says how many.
  std::uint64_t step_ahead(std::uint64_t most) noexcept;

  void set_water(std::uint64_t low_pages, std::uint64_t high_pages) noexcept;
  std::uint64_t low_pages() const noexcept;
  std::uint64_t high_pages() const noexcept;
  std::uint64_t cached_pages() const noexcept;
  // In the cache, lent, or mapped: what the budget was asked for.
  std::uint64_t held_pages() const noexcept;
  bool is_valid() const noexcept;
  Budget& budget() const noexcept { return *budget_; }
  std::uint64_t created_pages() const noexcept { return created_.load(); }
  std::uint64_t recycled_pages() const noexcept { return recycled_.load(); }

 private:
  // Of an adopted page, if there is one.
  Status make(std::uint64_t home, PageAdoption* adopted, Page* page) noexcept;
  Status make_all(const std::vector<std::uint64_t>& homes, const std::vector<std::size_t>& missing,
                  PageAdoption* adopted, std::vector<Page>* pages) noexcept;
  void destroy(const Page& page) noexcept;
  void unmake(const Page& page) noexcept;  // and gives its share of the budget back
  std::uint64_t find_home(std::uint64_t wish) noexcept;
  bool pop_home(std::uint64_t home, Page* page) noexcept;
  bool pop_any(Page* page) noexcept;
  void keep(const Page& page) noexcept;
  void run_ahead() noexcept;
  void wake() noexcept;
  bool is_over_budget() const noexcept { return budget_->is_exceeded(); }

  Driver& driver_;
  const std::int32_t device_;
  const std::uint64_t base_;
  const std::uint64_t page_bytes_;
  const BudgetPtr budget_;
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> created_{0};
  std::atomic<std::uint64_t> recycled_{0};

  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  LazyArray<PhysicalHandle> kept_;  // by home
  PageBitmap kept_homes_;           // where `kept_` has one
  PageBitmap homes_;                // of all pages that there are, here or elsewhere
  std::uint64_t low_pages_;
  std::uint64_t high_pages_;
  bool stopping_ = false;
  std::uint64_t calls_ = 0;  // of the thread; what came while it worked is not lost
  // Of its own, because the child of a fork can never destroy it: the waiting thread is not there to leave it.
  std::unique_ptr<std::condition_variable> called_ = std::make_unique<std::condition_variable>();
  std::int64_t owner_ = 0;  // the process whose thread it is
  std::unique_ptr<std::thread> thread_;
};

}  // namespace tensormem

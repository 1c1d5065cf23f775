#include "pool/page_cache.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

// A thread that makes pages ahead lets others in between.
constexpr std::uint64_t kStepPages = 16;

}  // namespace

PageCache::PageCache(Driver& driver, std::int32_t device, std::uint64_t base, std::uint64_t page_bytes,
                     std::uint64_t page_count, const PageCacheOptions& options, BudgetPtr budget)
    : driver_(driver),
      device_(device),
      base_(base),
      page_bytes_(page_bytes),
      budget_(std::move(budget)),
      kept_(page_count),
      kept_homes_(page_count),
      homes_(page_count),
      low_pages_(std::min(options.low_pages, page_count)),
      high_pages_(options.high_pages) {
  if (!options.background) return;
  owner_ = getpid();
  thread_ = std::make_unique<std::thread>([this] { run_ahead(); });
}

PageCache::~PageCache() {
  if (thread_ != nullptr && owner_ != getpid()) {
    (void)thread_.release();  // it is not in this process
    (void)called_.release();
  } else if (thread_ != nullptr) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_->join();
  }
  TM_WALK(is_valid());
  (void)trim(0);
}

// What is kept has a home, and no page is counted less than it is kept.
bool PageCache::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  if (!kept_homes_.is_valid() || !homes_.is_valid() || kept_homes_.count() > held_.load()) return false;
  for (std::uint64_t home = kept_homes_.next_set(0); home != PageBitmap::kNone; home = kept_homes_.next_set(home + 1)) {
    if (kept_[home] == kNoPhysical || !homes_.test(home)) return false;
  }
  return true;
}

// --- One page ------------------------------------------------------------------------------------------------------

// The wish, or any home that no page has yet.
std::uint64_t PageCache::find_home(std::uint64_t wish) noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t home = wish < kept_.size() && !homes_.test(wish) ? wish : homes_.next_clear(0);
  if (home != PageBitmap::kNone) homes_.set(home);
  return home;
}

Status PageCache::make(std::uint64_t home, PageAdoption* adopted, Page* page) noexcept {
  PhysicalOptions options;
  Page fresh;
  fresh.home = find_home(home);
  if (adopted != nullptr && adopted->take(&fresh.physical)) {
    recycled_ += 1;
    held_ += 1;
    *page = fresh;
    return {};
  }
  if (fresh.home != Page::kHomeless) options.placement = base_ + fresh.home * page_bytes_;
  Status status = driver_.physical_create(device_, page_bytes_, options, &fresh.physical);
  if (!status.ok()) {
    const std::lock_guard lock(mutex_);
    if (fresh.home != Page::kHomeless) homes_.clear(fresh.home);
    return status;
  }
  created_ += 1;
  held_ += 1;
  *page = fresh;
  return {};
}

void PageCache::destroy(const Page& page) noexcept {
  if (!PageAdoption::offer(driver_, device_, page_bytes_, page.physical)) {
    (void)driver_.physical_destroy(page.physical).ok();
  }
  const std::lock_guard lock(mutex_);
  if (page.home != Page::kHomeless) homes_.clear(page.home);
  held_ -= 1;
}

void PageCache::unmake(const Page& page) noexcept {
  destroy(page);
  budget_->give_back(page_bytes_);
}

bool PageCache::pop_home(std::uint64_t home, Page* page) noexcept {
  if (!kept_homes_.test(home)) return false;
  *page = Page{std::exchange(kept_[home], kNoPhysical), home};
  kept_homes_.clear(home);
  return true;
}

bool PageCache::pop_any(Page* page) noexcept {
  const std::uint64_t home = kept_homes_.next_set(0);
  return home != PageBitmap::kNone && pop_home(home, page);
}

void PageCache::keep(const Page& page) noexcept {
  kept_[page.home] = page.physical;
  kept_homes_.set(page.home);
}

// --- Pages ---------------------------------------------------------------------------------------------------------

Status PageCache::take(const std::vector<std::uint64_t>& homes, std::vector<Page>* pages, bool needed) noexcept try {
  std::vector<Page> taken(homes.size());
  std::vector<std::size_t> missing;
  missing.reserve(homes.size());  // from here on nothing throws
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < homes.size(); ++i) {
      if (!pop_home(homes[i], &taken[i])) missing.push_back(i);
    }
    while (!missing.empty() && pop_any(&taken[missing.back()])) missing.pop_back();
  }
  wake();
  if (missing.empty()) {
    recycled_ += homes.size();
    *pages = std::move(taken);
    return {};
  }
  const std::uint64_t lacking = missing.size() * page_bytes_;
  PageAdoption adopted(driver_, device_, page_bytes_, needed ? missing.size() : 0);
  Status status;
  status = needed ? budget_->claim(lacking) : budget_->try_claim(lacking);
  if (status.ok()) {
    status = make_all(homes, missing, &adopted, &taken);
    if (!status.ok()) budget_->give_back(lacking);
  }
  if (!status.ok()) {
    std::erase_if(taken, [](const Page& page) { return page.physical == kNoPhysical; });
    // The caller asked for all of them, and the cached ones could have been had.
    if (status.code() == Code::out_of_physical_memory) {
      status.set_fact(0, status.failure().facts[0] + taken.size() * page_bytes_);
      status.set_fact(1, status.failure().facts[1] + taken.size() * page_bytes_);
    }
    put_back(taken);
    return status;
  }
  recycled_ += homes.size() - missing.size();
  *pages = std::move(taken);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note pages", homes.size() * sizeof(Page));
}

// All of the missing ones, which the budget has admitted, or none.
Status PageCache::make_all(const std::vector<std::uint64_t>& homes, const std::vector<std::size_t>& missing,
                           PageAdoption* adopted, std::vector<Page>* pages) noexcept {
  for (std::size_t made = 0; made < missing.size(); ++made) {
    Status status = make(homes[missing[made]], adopted, &(*pages)[missing[made]]);
    if (status.ok()) continue;
    while (made-- > 0) destroy(std::exchange((*pages)[missing[made]], Page{}));
    return status;
  }
  return {};
}

void PageCache::put_back(const std::vector<Page>& pages) noexcept {
  std::size_t kept = 0;
  const bool may_keep = !is_over_budget();
  if (may_keep) {
    const std::lock_guard lock(mutex_);
    while (kept < pages.size() && kept_homes_.count() < high_pages_ && pages[kept].home != Page::kHomeless) {
      keep(pages[kept++]);
    }
  }
  for (std::size_t i = kept; i < pages.size(); ++i) unmake(pages[i]);
  if (kept != pages.size()) wake();  // there is budget again
}

std::uint64_t PageCache::trim(std::uint64_t keep_pages) noexcept {
  std::uint64_t gone = 0;
  while (true) {
    Page page;
    {
      const std::lock_guard lock(mutex_);
      if (kept_homes_.count() <= keep_pages || !pop_any(&page)) return gone;
    }
    unmake(page);
    ++gone;
  }
}

std::uint64_t PageCache::release(std::uint64_t wanted) noexcept {
  const std::uint64_t cached = cached_pages();
  const std::uint64_t pages = wanted / page_bytes_ + (wanted % page_bytes_ != 0 ? 1 : 0);
  return trim(cached - std::min(cached, pages)) * page_bytes_;
}

// --- Ahead ---------------------------------------------------------------------------------------------------------

std::uint64_t PageCache::step_ahead(std::uint64_t most) noexcept {
  for (std::uint64_t made = 0;; ++made) {
    {
      const std::lock_guard lock(mutex_);
      if (made == most || kept_homes_.count() >= low_pages_) return made;
    }
    Page page;
    if (!budget_->try_claim(page_bytes_).ok()) return made;  // never at the cost of others
    if (!make(Page::kHomeless, nullptr, &page).ok()) {
      budget_->give_back(page_bytes_);
      return made;
    }
    if (page.home == Page::kHomeless) {
      unmake(page);
      return made;
    }
    const std::lock_guard lock(mutex_);
    keep(page);
  }
}

void PageCache::run_ahead() noexcept {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::uint64_t seen = calls_;
    lock.unlock();
    const std::uint64_t made = step_ahead(kStepPages);
    lock.lock();
    // Full, or nothing to be had: until somebody takes or gives.
    if (made == 0) called_->wait(lock, [&] { return stopping_ || calls_ != seen; });
  }
}

void PageCache::wake() noexcept {
  if (thread_ == nullptr || owner_ != getpid()) return;
  {
    const std::lock_guard lock(mutex_);
    ++calls_;
  }
  called_->notify_one();
}

// --- Looking -------------------------------------------------------------------------------------------------------

void PageCache::set_water(std::uint64_t low_pages, std::uint64_t high_pages) noexcept {
  {
    const std::lock_guard lock(mutex_);
    low_pages_ = std::min(low_pages, static_cast<std::uint64_t>(kept_.size()));
    high_pages_ = high_pages;
  }
  wake();
  (void)trim(high_pages);
}

std::uint64_t PageCache::low_pages() const noexcept {
  const std::lock_guard lock(mutex_);
  return low_pages_;
}

std::uint64_t PageCache::high_pages() const noexcept {
  const std::lock_guard lock(mutex_);
  return high_pages_;
}

std::uint64_t PageCache::cached_pages() const noexcept {
  const std::lock_guard lock(mutex_);
  return kept_homes_.count();
}

std::uint64_t PageCache::held_pages() const noexcept { return held_.load(); }

}  // namespace tensormem

// Owns: pages that one call took from the cache and has not mapped, or has unmapped and not given back. They go to the
// cache when the call ends, after its lock: declare it before the lock.
// Must not know: what the call does.
#pragma once

#include <cstdint>
#include <vector>

#include "pool/elastic_pages.hpp"
#include "pool/virtual_memory_pool.hpp"

namespace tensormem {

class VirtualMemoryPool::Work {
 public:
  explicit Work(ElasticPages& pages) : pages_(pages) {}
  ~Work() { pages_.cache().put_back(loose_); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  std::uint64_t available() const noexcept { return loose_.size(); }
  // The pages that came first are mapped first, so that each comes to its home where it can.
  const Page* pages() const noexcept { return loose_.data(); }
  void used(std::uint64_t count) { loose_.erase(loose_.begin(), loose_.begin() + static_cast<std::ptrdiff_t>(count)); }
  // Hold no lock.
  Status take(const std::vector<std::uint64_t>& homes, bool needed = true) noexcept try {
    loose_.reserve(loose_.size() + homes.size());
    std::vector<Page> more;
    TM_TRY(pages_.cache().take(homes, &more, needed));
    loose_.insert(loose_.end(), more.begin(), more.end());
    return {};
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory to note pages", homes.size() * sizeof(Page));
  }
  Status take(std::uint64_t first, std::uint64_t count, bool needed = true) noexcept try {
    std::vector<std::uint64_t> homes(count);
    for (std::uint64_t i = 0; i < count; ++i) homes[i] = first + i;
    return take(homes, needed);
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory to note pages", count * sizeof(Page));
  }
  // Until there are so many, wherever they belong; not at the cost of others. Hold no lock.
  Status take_for_now(std::uint64_t count) noexcept {
    if (count <= available()) return {};
    return take(0, count - available(), false);
  }
  std::vector<Page>& loose() noexcept { return loose_; }

 private:
  ElasticPages& pages_;
  std::vector<Page> loose_;
};

// `attempt` does everything, with the lock, if the pages it needs are in the Work; otherwise it changes nothing and
// says which run of pages it needs. They are got without the lock, and it is asked again.
template <typename Attempt>
Status VirtualMemoryPool::with_pages(Attempt&& attempt) noexcept try {
  Work work(*pages_);
  while (true) {
    PageSpan missing;
    {
      const std::lock_guard lock(mutex_);
      (void)reap_locked(work).ok();  // told by reap_pending itself
      TM_TRY(attempt(work, &missing));
    }
    if (missing.count == 0) return {};
    const std::uint64_t have = work.available();
    TM_TRY(work.take(missing.first + have, missing.count - have));
  }
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", sizeof(PoolBlock));
}

}  // namespace tensormem

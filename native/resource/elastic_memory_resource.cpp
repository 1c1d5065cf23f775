#include "resource/elastic_memory_resource.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"

namespace tensormem {

namespace {

constexpr std::uint64_t kGranule = 256;
constexpr std::uint64_t kSmallestPage = 64ULL << 10;
constexpr std::uint64_t kMostAddresses = 1ULL << 40;
constexpr std::uint64_t kFewestAddresses = 1ULL << 36;
constexpr std::uint64_t kAddressesPerByte = 8;  // so much room that blocks hardly ever meet

Status no_memory_for_books() {
  return Status::fail(Code::out_of_memory, "no memory for the books of a resource", sizeof(Page));
}

Status open_pages(Driver& driver, std::int32_t device, const ElasticOptions& options, std::uint64_t capacity,
                  const BudgetPtr& budget, std::unique_ptr<ElasticPages>* pages) {
  const std::uint64_t count = (capacity + options.page_bytes - 1) / options.page_bytes;
  PageCacheOptions cache;
  cache.high_pages = options.release_threshold / options.page_bytes;
  return ElasticPages::open(driver, device, options.page_bytes, count, cache, budget, pages);
}

// Several times the memory of the device, and less where there are not so many addresses: an integrated board with 39
// bits has none to waste. Never less than the memory itself.
Status open_widest(Driver& driver, std::int32_t device, const ElasticOptions& options, const BudgetPtr& budget,
                   std::unique_ptr<ElasticPages>* pages) {
  MemoryInfo memory;
  TM_TRY(driver.memory_info(device, &memory));
  const std::uint64_t least = std::max(memory.total_bytes, options.page_bytes);
  std::uint64_t capacity = least < kMostAddresses / kAddressesPerByte
                               ? std::max(std::bit_ceil(least) * kAddressesPerByte, kFewestAddresses)
                               : std::max(kMostAddresses, least);
  while (true) {
    Status status = open_pages(driver, device, options, capacity, budget, pages);
    // Vendors do not agree on the answer to a reservation that is too large.
    const bool too_large = status.code() == Code::out_of_virtual_memory || status.code() == Code::driver_error;
    if (!too_large || capacity / 2 < least) return status;
    capacity /= 2;
  }
}

}  // namespace

ElasticMemoryResource::ElasticMemoryResource(Driver& driver, std::int32_t device, const ElasticOptions& options,
                                             std::unique_ptr<ElasticPages> pages)
    : LeafMemoryResource(driver, device),
      pages_(std::move(pages)),
      keep_pages_(options.release_threshold / options.page_bytes),
      references_(pages_->page_count()),
      idle_(pages_->page_count()) {}

Status ElasticMemoryResource::create(Driver& driver, std::int32_t device, const ElasticOptions& options,
                                     BudgetPtr budget, std::shared_ptr<ElasticMemoryResource>* out) try {
  Granularity granularity;
  TM_TRY(driver.granularity(device, &granularity));
  const std::uint64_t least = std::max(kSmallestPage, granularity.minimum);
  if (!is_power_of_two(options.page_bytes) || options.page_bytes < least) {
    return Status::fail(Code::invalid_page_size, "", options.page_bytes, least);
  }
  const bool widest = options.capacity == ElasticOptions::kWidest;
  if (options.capacity == 0 || (options.capacity > kNoOverflowLimit / 2 && !widest)) {
    return Status::fail(Code::invalid_size, "the addresses of an elastic resource", options.capacity);
  }
  std::unique_ptr<ElasticPages> pages;
  TM_TRY(widest ? open_widest(driver, device, options, budget, &pages)
                : open_pages(driver, device, options, options.capacity, budget, &pages));
  const std::uint64_t count = pages->page_count();
  const std::uint32_t pages_id = pages->id();
  std::shared_ptr<ElasticMemoryResource> made(new ElasticMemoryResource(driver, device, options, std::move(pages)));
  TM_TRY(made->space_.open(count * options.page_bytes, kGranule));
  move_reporter(made->id(), pages_id);
  made->pages_->cache().budget().enlist(*made, &made->membership_);
  *out = std::move(made);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

ElasticMemoryResource::~ElasticMemoryResource() {
  membership_.end();
  finish();
}

// --- Taking --------------------------------------------------------------------------------------------------------

ElasticMemoryResource::Span ElasticMemoryResource::span_of(std::uint64_t offset, std::uint64_t size) const {
  return {offset / page_bytes(), (offset + size + page_bytes() - 1) / page_bytes()};
}

Status ElasticMemoryResource::take(const AllocRequest& request, std::uint64_t* address) try {
  std::vector<Page> loose;
  std::vector<std::uint64_t> missing;
  Status status;
  bool has_reaped = false;
  while (true) {
    {
      const std::lock_guard lock(pages_mutex_);
      status = try_take(request, &loose, &missing, address);
    }
    if (!status.ok() || missing.empty()) break;
    // Before memory is made, what waits for streams that have passed is looked at once.
    if (!std::exchange(has_reaped, true) && stats().retired_count != 0) {
      (void)reap_pending().ok();
      continue;
    }
    missing.erase(missing.begin(),
                  missing.begin() + static_cast<std::ptrdiff_t>(std::min(loose.size(), missing.size())));
    std::vector<Page> more;
    status = pages_->cache().take(missing, &more);
    if (!status.ok()) break;
    loose.insert(loose.end(), more.begin(), more.end());
  }
  if (status.code() == Code::out_of_physical_memory) status = refusal(request.nbytes, loose.size(), status);
  pages_->cache().put_back(loose);
  return status;
} catch (const std::bad_alloc&) {
  return no_memory_for_books();
}

// What could have been had: whole pages of what was left to the cache, and those that lie here with nothing in them.
Status ElasticMemoryResource::refusal(std::uint64_t nbytes, std::uint64_t loose_pages, const Status& lacking) const {
  const std::lock_guard lock(pages_mutex_);
  const std::uint64_t left = align_down(lacking.failure().facts[1], page_bytes());
  const std::uint64_t room = left + (loose_pages + idle_.count()) * page_bytes();
  return Status::fail(Code::out_of_memory, "the physical limit is reached", nbytes, room, room);
}

// Everything, if the pages it needs are in `loose` or idle; otherwise nothing, and `missing` says which.
Status ElasticMemoryResource::try_take(const AllocRequest& request, std::vector<Page>* loose,
                                       std::vector<std::uint64_t>* missing, std::uint64_t* address) {
  Allocation range;
  TM_TRY(space_.allocate(request.nbytes, std::max(request.alignment, kGranule), &range));
  const Span span = span_of(range.offset, request.nbytes);
  missing->clear();
  for (std::uint64_t page = pages_->mapped().next_clear(span.first); page < span.end;
       page = pages_->mapped().next_clear(page + 1)) {
    missing->push_back(page);
  }
  Status status;
  if (missing->size() > loose->size()) status = steal_idle(span, missing->size() - loose->size(), loose);
  if (status.ok() && missing->size() > loose->size()) {
    (void)space_.deallocate(range.node).ok();
    return {};
  }
  if (status.ok()) status = map_missing(*missing, loose);
  if (status.ok()) {
    try {
      nodes_.emplace(range.offset, range.node);
    } catch (const std::bad_alloc&) {
      status = no_memory_for_books();
    }
  }
  if (!status.ok()) {
    // Pages that were mapped for it stay, idle.
    for (const std::uint64_t page : *missing) {
      if (pages_->mapped().test(page)) idle_.set(page);
    }
    (void)space_.deallocate(range.node).ok();
    return status;
  }
  missing->clear();
  use(span);
  *address = pages_->base() + range.offset;
  return {};
}

Status ElasticMemoryResource::map_missing(const std::vector<std::uint64_t>& missing, std::vector<Page>* loose) {
  for (std::size_t at = 0; at < missing.size();) {
    std::size_t next = at + 1;
    while (next < missing.size() && missing[next] == missing[next - 1] + 1) ++next;
    const std::size_t count = next - at;
    TM_TRY(pages_->map(missing[at], loose->data(), count));
    loose->erase(loose->begin(), loose->begin() + static_cast<std::ptrdiff_t>(count));
    at = next;
  }
  peak_pages_ = std::max(peak_pages_, pages_->cache().held_pages());
  return {};
}

// Idle pages outside the span, at most `count`.
Status ElasticMemoryResource::steal_idle(const Span& except, std::uint64_t count, std::vector<Page>* loose) {
  std::uint64_t page = idle_.next_set(0);
  while (count != 0 && page != PageBitmap::kNone) {
    if (page >= except.first && page < except.end) {
      page = idle_.next_set(except.end);
      continue;
    }
    std::uint64_t end = std::min(idle_.next_clear(page), page + count);
    if (page < except.first) end = std::min(end, except.first);
    TM_TRY(pages_->unmap(page, end - page, loose));
    idle_.clear(page, end - page);
    count -= end - page;
    page = idle_.next_set(end);
  }
  return {};
}

void ElasticMemoryResource::use(const Span& span) {
  for (std::uint64_t page = span.first; page < span.end; ++page) {
    if (references_[page]++ == 0) idle_.clear(page);
  }
}

void ElasticMemoryResource::leave(const Span& span) {
  for (std::uint64_t page = span.first; page < span.end; ++page) {
    if (--references_[page] == 0) idle_.set(page);
  }
}

// --- Giving back ---------------------------------------------------------------------------------------------------

Status ElasticMemoryResource::give_back(const BlockEntry& entry) {
  std::vector<Page> surplus;
  Status refused;  // what the driver keeps for now stays idle: the block is back all the same
  {
    const std::lock_guard lock(pages_mutex_);
    const std::uint64_t offset = entry.address - pages_->base();
    const auto found = nodes_.find(offset);
    TM_ASSERT(found != nodes_.end());
    const Status freed = space_.deallocate(found->second);
    TM_ASSERT(freed.ok());
    nodes_.erase(found);
    leave(span_of(offset, entry.nbytes));
    if (idle_.count() > keep_pages_) surplus = take_surplus(keep_pages_, &refused);
  }
  pages_->cache().put_back(surplus);
  (void)pages_->cache().trim(0);
  return {};
}

// Unmaps idle pages, the highest run first found, until `keep_pages` are left.
std::vector<Page> ElasticMemoryResource::take_surplus(std::uint64_t keep_pages, Status* failure) {
  std::vector<Page> surplus;
  std::uint64_t page = idle_.next_set(0);
  while (idle_.count() > keep_pages && page != PageBitmap::kNone) {
    const std::uint64_t end = std::min(idle_.next_clear(page), page + idle_.count() - keep_pages);
    *failure = pages_->unmap(page, end - page, &surplus);
    if (!failure->ok()) break;
    idle_.clear(page, end - page);
    page = idle_.next_set(end);
  }
  return surplus;
}

Status ElasticMemoryResource::trim(std::uint64_t keep_bytes, std::uint64_t* released) {
  *released = 0;
  Status reaped = reap_pending();
  Status refused;
  std::vector<Page> surplus;
  {
    const std::lock_guard lock(pages_mutex_);
    surplus = take_surplus(keep_bytes / page_bytes(), &refused);
  }
  const std::uint64_t before = pages_->cache().held_pages();
  pages_->cache().put_back(surplus);
  (void)pages_->cache().trim(0);
  *released = (before - pages_->cache().held_pages()) * page_bytes();
  TM_TRY(std::move(refused));
  return reaped;
}

std::uint64_t ElasticMemoryResource::release_idle(std::uint64_t wanted) noexcept try {
  std::uint64_t released = pages_->cache().release(wanted);
  if (released >= wanted) return released;
  if (stats().retired_count != 0) (void)reap_pending().ok();
  std::vector<Page> surplus;
  Status refused;  // what the driver keeps for now stays idle
  {
    const std::lock_guard lock(pages_mutex_);
    const std::uint64_t pages = (wanted - released + page_bytes() - 1) / page_bytes();
    surplus = take_surplus(idle_.count() - std::min(idle_.count(), pages), &refused);
  }
  pages_->cache().put_back(surplus);
  (void)pages_->cache().release(surplus.size() * page_bytes());
  return released + surplus.size() * page_bytes();
} catch (const std::bad_alloc&) {
  return 0;
}

// --- Looking -------------------------------------------------------------------------------------------------------

ElasticUsage ElasticMemoryResource::usage() const {
  const std::lock_guard lock(pages_mutex_);
  ElasticUsage usage;
  const std::uint64_t held = pages_->cache().held_pages();
  const std::uint64_t used = pages_->mapped().count() - idle_.count();
  usage.physical_bytes = held * page_bytes();
  usage.peak_physical_bytes = std::max(peak_pages_, held) * page_bytes();
  usage.used_page_bytes = used * page_bytes();
  usage.idle_bytes = (held - used) * page_bytes();
  usage.total_free = space_.total_free();
  usage.largest_free = space_.largest_free();
  return usage;
}

bool ElasticMemoryResource::pages_are_valid() const {
  const std::lock_guard lock(pages_mutex_);
  std::uint64_t used = 0;
  for (std::uint64_t page = pages_->mapped().next_set(0); page != PageBitmap::kNone;
       page = pages_->mapped().next_set(page + 1)) {
    if ((references_[page] == 0) != idle_.test(page)) return false;
    used += references_[page] != 0 ? 1 : 0;
  }
  return used + idle_.count() == pages_->mapped().count() && pages_->is_valid() && space_.is_valid() &&
         idle_.is_valid();
}

}  // namespace tensormem

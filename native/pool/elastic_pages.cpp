#include "pool/elastic_pages.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/invariant.hpp"
#include "driver/memory_space.hpp"
#include "trace/inside.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

namespace {

Status no_memory_for_books(std::uint64_t nbytes) {
  return Status::fail(Code::out_of_memory, "no memory for the books of a pool", nbytes);
}

}  // namespace

ElasticPages::ElasticPages(Driver& driver, std::int32_t device, std::uint64_t base, std::uint64_t page_bytes,
                           std::uint64_t page_count, const PageCacheOptions& options, BudgetPtr budget)
    : driver_(driver),
      device_(device),
      base_(base),
      page_bytes_(page_bytes),
      id_(add_reporter(0, "pages", text_of(space_of(driver, device)))),
      mapped_(page_count),
      table_(page_count),
      cache_(driver, device, base, page_bytes, page_count, options, std::move(budget)) {}

Status ElasticPages::open(Driver& driver, std::int32_t device, std::uint64_t page_bytes, std::uint64_t page_count,
                          const PageCacheOptions& options, BudgetPtr budget,
                          std::unique_ptr<ElasticPages>* pages) noexcept {
  std::uint64_t base = 0;
  TM_TRY(driver.reserve(page_bytes * page_count, page_bytes, &base));
  try {
    pages->reset(new ElasticPages(driver, device, base, page_bytes, page_count, options, std::move(budget)));
    return {};
  } catch (const std::exception&) {  // no memory, or no thread
    (void)driver.release(base, page_bytes * page_count).ok();
    return no_memory_for_books(sizeof(ElasticPages) + page_count * sizeof(Page));
  }
}

// In this order: unmap, give back the pages, release the addresses. A driver that refuses twice keeps them.
ElasticPages::~ElasticPages() {
  TM_WALK(is_valid());
  std::vector<Page> pages;
  for (std::uint64_t first = mapped_.next_set(0); first != PageBitmap::kNone; first = mapped_.next_set(first)) {
    const std::uint64_t end = std::min(mapped_.next_clear(first), page_count());
    if (!unmap(first, end - first, &pages).ok() && !unmap(first, end - first, &pages).ok()) first = end;
    cache_.put_back(pages);
    pages.clear();
  }
  (void)cache_.trim(0);
  remove_reporter(id_);
  if (driver_.release(base_, page_bytes_ * page_count()).ok()) return;
  (void)driver_.release(base_, page_bytes_ * page_count()).ok();
}

Status ElasticPages::map(std::uint64_t first, const Page* pages, std::uint64_t count) noexcept try {
  TM_ASSERT(mapped_.none_set(first, count));
  std::vector<MapPiece> pieces(count);
  for (std::uint64_t i = 0; i < count; ++i) pieces[i] = MapPiece{pages[i].physical, 0, page_bytes_};
  TM_TRY(driver_.map_run(address_of(first), pieces.data(), count, device_, AccessFlags::read_write));
  for (std::uint64_t i = 0; i < count; ++i) table_[first + i] = pages[i];
  mapped_.set(first, count);
  report_map(id_, address_of(first), count * page_bytes_, count);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books(count * sizeof(MapPiece));
}

Status ElasticPages::unmap(std::uint64_t first, std::uint64_t count, std::vector<Page>* pages) noexcept try {
  TM_ASSERT(mapped_.all_set(first, count));
  pages->reserve(pages->size() + count);
  TM_TRY(driver_.unmap(address_of(first), count * page_bytes_));
  for (std::uint64_t i = first; i < first + count; ++i) pages->push_back(std::exchange(table_[i], Page{}));
  mapped_.clear(first, count);
  report_unmap(id_, address_of(first), count * page_bytes_);
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for_books(count * sizeof(Page));
}

// --- Move ----------------------------------------------------------------------------------------------------------

Status ElasticPages::move_apart(std::uint64_t from, std::uint64_t to, std::uint64_t count) noexcept try {
  std::vector<Page> moving(count);
  for (std::uint64_t i = 0; i < count; ++i) moving[i] = table_[from + i];
  std::vector<Page> old;
  old.reserve(count);
  Status status;
  {
    const TraceInside inside;
    TM_TRY(map(to, moving.data(), count));
    status = unmap(from, count, &old);
    if (!status.ok()) (void)unmap(to, count, &old).ok();
  }
  if (status.ok()) report_move(id_, address_of(to), count * page_bytes_, address_of(from));
  return status;
} catch (const std::bad_alloc&) {
  return no_memory_for_books(count * sizeof(Page));
}

// Where the two ranges overlap, in steps of their distance, from the end that is free.
Status ElasticPages::move_all(std::uint64_t from, std::uint64_t to, std::uint64_t count, std::uint64_t* done) noexcept {
  const bool down = to < from;
  const std::uint64_t step = std::min(count, down ? from - to : to - from);
  while (*done < count) {
    const std::uint64_t now = std::min(step, count - *done);
    const std::uint64_t at = down ? *done : count - *done - now;
    TM_TRY(move_apart(from + at, to + at, now));
    *done += now;
  }
  return {};
}

Status ElasticPages::move(std::uint64_t from, std::uint64_t to, std::uint64_t count) noexcept {
  if (from == to || count == 0) return {};
  std::uint64_t done = 0;
  Status status = move_all(from, to, count, &done);
  if (status.ok()) return {};
  std::uint64_t undone = 0;
  const std::uint64_t at = to < from ? 0 : count - done;
  if (done != 0) (void)move_all(to + at, from + at, done, &undone).ok();
  return status;
}

bool ElasticPages::is_valid() const noexcept {
  for (std::uint64_t page = mapped_.next_set(0); page != PageBitmap::kNone; page = mapped_.next_set(page + 1)) {
    if (table_[page].physical == kNoPhysical) return false;
  }
  return mapped_.is_valid() && cache_.is_valid() && mapped_.count() + cache_.cached_pages() <= cache_.held_pages();
}

}  // namespace tensormem

// One bit a page, against a vector of truths.
#include <random>
#include <vector>

#include "alloc/page_bitmap.hpp"
#include "tests/check.hpp"

using tensormem::PageBitmap;

namespace {

std::uint64_t next_in(const std::vector<bool>& model, std::uint64_t from, bool value) {
  for (; from < model.size(); ++from) {
    if (model[from] == value) return from;
  }
  return PageBitmap::kNone;
}

void churn(std::uint64_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  PageBitmap bitmap(size);
  std::vector<bool> model(size);
  for (int step = 0; step < 2000; ++step) {
    const std::uint64_t first = random() % size;
    const std::uint64_t count = random() % 4 == 0 ? random() % (size - first) : random() % (size - first) % 130;
    const bool value = random() % 2 != 0;
    if (count == 1) value ? bitmap.set(first) : bitmap.clear(first);
    if (count != 1) value ? bitmap.set(first, count) : bitmap.clear(first, count);
    for (std::uint64_t i = first; i < first + count; ++i) model[i] = value;
    const std::uint64_t from = random() % (size + 70);
    TM_CHECK(bitmap.next_set(from) == next_in(model, from, true));
    TM_CHECK(bitmap.next_clear(from) == next_in(model, from, false));
    const std::uint64_t at = random() % size;
    const std::uint64_t length = random() % (size - at) + 1;
    TM_CHECK(bitmap.all_set(at, length) == (next_in(model, at, false) >= at + length));
    TM_CHECK(bitmap.none_set(at, length) == (next_in(model, at, true) >= at + length));
    TM_CHECK(bitmap.test(at) == model[at]);
  }
  std::uint64_t count = 0;
  for (const bool bit : model) count += bit ? 1 : 0;
  TM_CHECK(bitmap.count() == count && bitmap.is_valid());
}

}  // namespace

TM_TEST("bits agree with a model at every odd size") {
  for (const std::uint64_t size : {1, 2, 63, 64, 65, 127, 128, 1000, 4095, 4096, 4097, 5000}) churn(size, 7);
}

TM_TEST("two million pages are scanned by their summaries") {
  constexpr std::uint64_t kPages = 2'000'003;
  PageBitmap bitmap(kPages);
  TM_CHECK(bitmap.next_set(0) == PageBitmap::kNone && bitmap.none_set(0, kPages) && !bitmap.all_set(0, 1));
  bitmap.set(0, kPages);
  TM_CHECK(bitmap.count() == kPages && bitmap.all_set(0, kPages) && bitmap.next_clear(0) == PageBitmap::kNone);
  bitmap.clear(kPages - 1);
  TM_CHECK(bitmap.next_clear(0) == kPages - 1 && !bitmap.all_set(0, kPages) && bitmap.all_set(0, kPages - 1));
  bitmap.clear(0, kPages);
  bitmap.set(kPages - 1);
  TM_CHECK(bitmap.next_set(0) == kPages - 1 && bitmap.count() == 1 && bitmap.is_valid());
}

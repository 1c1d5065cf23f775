// Copies between layouts: a plan, run by the CPU, gives what one element at a time gives.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/copy_plan.hpp"
#include "tensor/host_copy.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

using Numbers = std::vector<std::int64_t>;

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// A layout with the dimensions in some order, gaps between them, and some of them backward.
struct Layout {
  Numbers strides;
  std::int64_t first = 0;
  std::int64_t nbytes = 0;
};

Layout random_layout(const Numbers& shape, std::int64_t item, std::mt19937_64& random) {
  Layout made;
  made.strides.resize(shape.size());
  std::vector<std::size_t> order(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::int64_t next = item;
  for (const std::size_t dim : order) {
    if (random() % 3 == 0) next += item * static_cast<std::int64_t>(random() % 3);
    made.strides[dim] = next;
    next *= shape[dim] > 0 ? shape[dim] : 1;
  }
  made.nbytes = next + item;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (random() % 3 != 0) continue;
    made.first += (shape[dim] - 1) * made.strides[dim];
    made.strides[dim] = -made.strides[dim];
  }
  return made;
}

void copy_one_by_one(const Numbers& shape, std::size_t dim, std::int64_t item, char* to, const Numbers& to_strides,
                     const char* from, const Numbers& from_strides) {
  if (dim == shape.size()) {
    std::memcpy(to, from, static_cast<std::size_t>(item));
    return;
  }
  for (std::int64_t i = 0; i < shape[dim]; ++i) {
    copy_one_by_one(shape, dim + 1, item, to + i * to_strides[dim], to_strides, from + i * from_strides[dim],
                    from_strides);
  }
}

bool copies_the_same(const Numbers& shape, std::int64_t item, std::mt19937_64& random) {
  const Layout to = random_layout(shape, item, random);
  const Layout from = random_layout(shape, item, random);
  std::vector<char> source(static_cast<std::size_t>(from.nbytes));
  for (char& byte : source) byte = static_cast<char>(random());
  std::vector<char> expected(static_cast<std::size_t>(to.nbytes), 'x');
  std::vector<char> found = expected;
  copy_one_by_one(shape, 0, item, expected.data() + to.first, to.strides, source.data() + from.first, from.strides);
  CopyPlan plan;
  const Status status =
      plan_copy(static_cast<std::int32_t>(shape.size()), shape.data(), static_cast<std::uint64_t>(item),
                {address(found.data() + to.first), to.strides.data()},
                {address(source.data() + from.first), from.strides.data()}, &plan);
  if (!status.ok() || !plan.is_valid()) return false;
  run_on_host(plan);
  return found == expected;
}

CopyPlan plan_of(const Numbers& shape, std::uint64_t item, const Numbers& to, const Numbers& from) {
  CopyPlan plan;
  const Status status = plan_copy(static_cast<std::int32_t>(shape.size()), shape.data(), item, {1 << 20, to.data()},
                                  {1 << 21, from.data()}, &plan);
  TM_CHECK(status.ok());
  return plan;
}

}  // namespace

TM_TEST("random layouts are copied as one element at a time would") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    Numbers shape(random() % 5);
    for (std::int64_t& length : shape) length = static_cast<std::int64_t>(1 + random() % 7);
    const std::int64_t items[] = {1, 2, 3, 4, 8, 12, 16, 24};
    TM_CHECK(copies_the_same(shape, items[random() % 8], random));
  }
}

TM_TEST("large layouts are copied by two threads as by one") {
  std::mt19937_64 random(8);
  for (int round = 0; round < 12; ++round) {
    const std::int64_t items[] = {1, 2, 4, 8};
    TM_CHECK(copies_the_same({130, 97, 113}, items[round % 4], random));
  }
  TM_CHECK(copies_the_same({3 << 20}, 1, random));
}

TM_TEST("layouts without gaps are one run") {
  const CopyPlan plan = plan_of({2, 3, 4}, 4, {48, 16, 4}, {48, 16, 4});
  TM_CHECK(plan.ndim == 0 && plan.run == 96);
}

TM_TEST("the same permutation on both sides is one run") {
  const CopyPlan plan = plan_of({2, 3}, 4, {4, 8}, {4, 8});
  TM_CHECK(plan.ndim == 0 && plan.run == 24);
}

TM_TEST("nothing to copy is an empty plan") {
  const CopyPlan plan = plan_of({2, 0}, 4, {4, 8}, {4, 8});
  TM_CHECK(plan.run == 0 && plan.ndim == 0 && plan.is_valid());
  run_on_host(plan);
}

TM_TEST("a destination that writes bytes twice is refused") {
  CopyPlan plan;
  const Numbers shape = {4};
  const Numbers still = {0};
  const Numbers narrow = {2};
  const Numbers from = {4};
  TM_CHECK(plan_copy(1, shape.data(), 4, {1 << 20, still.data()}, {1 << 21, from.data()}, &plan).code() ==
           Code::invalid_argument);
  TM_CHECK(plan_copy(1, shape.data(), 4, {1 << 20, narrow.data()}, {1 << 21, from.data()}, &plan).code() ==
           Code::invalid_argument);
}

TM_TEST("rows apart by pitches are one box, and a transposition is none") {
  CopyBox box;
  std::int32_t outer = -1;
  CopyPlan rows = plan_of({5, 8}, 4, {64, 4}, {32, 4});
  TM_CHECK(as_box(rows, &box, &outer));
  TM_CHECK(outer == 0 && box.shape.width == 32 && box.shape.height == 5 && box.shape.depth == 1);
  TM_CHECK(box.to.row_pitch == 64 && box.from.row_pitch == 32);
  CopyPlan planes = plan_of({3, 5, 8}, 4, {1024, 64, 4}, {512, 48, 4});
  TM_CHECK(as_box(planes, &box, &outer));
  TM_CHECK(outer == 0 && box.shape.depth == 3 && box.to.plane_pitch == 1024 && box.from.plane_pitch == 512);
  // A column is a box too: elements one below the other, for every step the other way.
  CopyPlan columns = plan_of({5, 8}, 4, {32, 4}, {4, -20});
  TM_CHECK(as_box(columns, &box, &outer));
  TM_CHECK(outer == 1 && box.shape.width == 4 && box.shape.height == 5 && box.to.row_pitch == 32);
  CopyPlan backwards = plan_of({5, 8}, 4, {32, 4}, {-4, -20});
  TM_CHECK(!as_box(backwards, &box, &outer));
}

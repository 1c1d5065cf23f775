// Shapes and strides: what they reach, what is refused, and which views a reshape has.
#include <cstdint>
#include <vector>

#include "tensor/layout.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

using Numbers = std::vector<std::int64_t>;

Code refused(const Numbers& shape, const Numbers* strides, ElementWidth width = {32, false}) {
  Reach reach;
  return measure_layout(static_cast<std::int32_t>(shape.size()), shape.data(),
                        strides == nullptr ? nullptr : strides->data(), width, Code::invalid_size, &reach)
      .code();
}

Reach reach_of(const Numbers& shape, const Numbers& strides, ElementWidth width = {32, false}) {
  Reach reach;
  const Status status = measure_layout(static_cast<std::int32_t>(shape.size()), shape.data(), strides.data(), width,
                                       Code::invalid_size, &reach);
  TM_CHECK(status.ok());
  return reach;
}

bool reshapes(const Numbers& shape, const Numbers& strides, const Numbers& wanted, Numbers* found) {
  found->assign(wanted.size(), -99);
  return reshape_strides(static_cast<std::int32_t>(shape.size()), shape.data(), strides.data(),
                         static_cast<std::int32_t>(wanted.size()), wanted.data(), found->data());
}

}  // namespace

TM_TEST("negative strides reach below the first element") {
  const Reach reach = reach_of({3, 4}, {-4, 1});
  TM_CHECK(reach.count == 12 && reach.below == 32 && reach.above == 16);
}

TM_TEST("a layout without elements reaches nothing") {
  const Reach reach = reach_of({3, 0, 4}, {1, 1, 1});
  TM_CHECK(reach.count == 0 && reach.below == 0 && reach.above == 0);
}

TM_TEST("a layout without dimensions is one element") {
  const Reach reach = reach_of({}, {});
  TM_CHECK(reach.count == 1 && reach.above == 4);
}

TM_TEST("negative lengths and overflowing shapes are refused") {
  TM_CHECK(refused({-1}, nullptr) == Code::invalid_size);
  TM_CHECK(refused({INT64_MAX, 2}, nullptr) == Code::invalid_size);
  TM_CHECK(refused({INT64_MAX}, nullptr) == Code::invalid_size);
  TM_CHECK(refused({INT64_MAX, INT64_MAX, 0}, nullptr) == Code::invalid_size);
}

TM_TEST("overflowing strides are refused") {
  const Numbers far = {INT64_MAX};
  const Numbers back = {INT64_MIN};
  TM_CHECK(refused({3}, &far) == Code::invalid_size);
  TM_CHECK(refused({2}, &far) == Code::invalid_size);
  TM_CHECK(refused({2}, &back) == Code::invalid_size);
  TM_CHECK(refused({3}, &back) == Code::invalid_size);
}

TM_TEST("packed elements count bits and lie without gaps") {
  const ElementWidth half{4, true};
  TM_CHECK(reach_of({3}, {1}, half).above == 2);
  const Numbers gaps = {2};
  TM_CHECK(refused({3}, &gaps, half) == Code::invalid_size);
}

TM_TEST("a reshape of row-major elements is a view") {
  Numbers found;
  TM_CHECK(reshapes({2, 6}, {6, 1}, {3, 4}, &found) && found == Numbers({4, 1}));
}

TM_TEST("a reshape that keeps the runs of a strided layout is a view") {
  Numbers found;
  TM_CHECK(reshapes({4, 3}, {6, 1}, {2, 2, 3}, &found) && found == Numbers({12, 6, 1}));
  TM_CHECK(reshapes({2, 3, 1}, {100, 1, 5}, {2, 1, 3}, &found) && found[0] == 100 && found[2] == 1);
}

TM_TEST("a reshape across a gap is no view") {
  Numbers found;
  TM_CHECK(!reshapes({2, 3}, {4, 1}, {6}, &found));
  TM_CHECK(!reshapes({2, 3}, {1, 2}, {6}, &found));
}

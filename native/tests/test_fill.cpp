#include <array>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "tensor/fill.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

// Fills a layout inside a buffer of `0xAA` and gives the buffer.
std::vector<std::uint8_t> filled(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                                 std::uint64_t offset, const std::vector<std::uint8_t>& element, std::size_t size) {
  std::vector<std::uint8_t> bytes(size, 0xAA);
  FillRequest request;
  request.ndim = static_cast<std::int32_t>(shape.size());
  request.shape = shape.data();
  request.to = {reinterpret_cast<std::uint64_t>(bytes.data()) + offset, strides.data()};
  request.element = element.data();
  request.item_bytes = element.size();
  bool done = false;
  TM_CHECK(fill_layout(host_driver(), request, 4096, kDefaultStream, &done).ok());
  TM_CHECK(done);
  return bytes;
}

}  // namespace

TM_TEST("elements of 1 to 16 bytes are repeated over a dense layout") {
  for (const std::size_t width : {1U, 2U, 4U, 8U, 16U}) {
    std::vector<std::uint8_t> element(width);
    for (std::size_t i = 0; i < width; ++i) element[i] = static_cast<std::uint8_t>(i + 1);
    const auto step = static_cast<std::int64_t>(width);
    const auto bytes = filled({3, 5}, {5 * step, step}, 0, element, 15 * width);
    for (std::size_t i = 0; i < bytes.size(); ++i) TM_CHECK(bytes[i] == element[i % width]);
  }
}

TM_TEST("a strided, backward layout is filled and its gaps are not") {
  const auto bytes = filled({3}, {-8}, 16, {1, 2, 3, 4}, 24);
  for (std::size_t i = 0; i < bytes.size(); ++i) TM_CHECK(bytes[i] == (i % 8 < 4 ? i % 8 + 1 : 0xAA));
}

TM_TEST("a layout of too many boxes is refused before anything is filled") {
  std::vector<std::uint8_t> bytes(16 * 16 * 16 * 16, 0xAA);
  const std::array<std::int64_t, 4> shape{8, 8, 8, 8};
  const std::array<std::int64_t, 4> strides{16 * 16 * 16 + 1, 16 * 16 + 1, 17, 2};
  const std::uint8_t element = 1;
  FillRequest request;
  request.ndim = 4;
  request.shape = shape.data();
  request.to = {reinterpret_cast<std::uint64_t>(bytes.data()), strides.data()};
  request.element = &element;
  request.item_bytes = 1;
  bool done = true;
  TM_CHECK(fill_layout(host_driver(), request, 1, kDefaultStream, &done).ok());
  TM_CHECK(!done);
  for (const std::uint8_t byte : bytes) TM_CHECK(byte == 0xAA);
  TM_CHECK(fill_layout(host_driver(), request, 4096, kDefaultStream, &done).ok());
  TM_CHECK(done && bytes[0] == 1 && bytes[1] == 0xAA);
}

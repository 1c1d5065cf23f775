// Copies and fills of the host driver, against loops that move one byte at a time.
#include <cstdint>
#include <random>
#include <vector>

#include "tests/check.hpp"
#include "tests/host_process.hpp"

namespace tensormem {
namespace {

using Bytes = std::vector<unsigned char>;

std::uint64_t address_of(const Bytes& bytes, std::uint64_t offset = 0) {
  return reinterpret_cast<std::uint64_t>(bytes.data()) + offset;
}

Bytes random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

struct Layout {
  std::uint64_t offset;
  std::uint64_t row_pitch;
  std::uint64_t plane_pitch;
};

std::uint64_t index_of(const Layout& layout, std::uint64_t plane, std::uint64_t row, std::uint64_t column) {
  return layout.offset + plane * layout.plane_pitch + row * layout.row_pitch + column;
}

Pitched place(const Bytes& bytes, const Layout& layout) {
  return Pitched{address_of(bytes, layout.offset), 0, layout.row_pitch, layout.plane_pitch};
}

void check_copy_case(const CopyShape& shape, const Layout& to, const Layout& from, StreamId stream) {
  const Bytes source = random_bytes(1 << 16, 1);
  Bytes destination = random_bytes(1 << 16, 2);
  Bytes expected = destination;
  for (std::uint64_t z = 0; z < shape.depth; ++z) {
    for (std::uint64_t y = 0; y < shape.height; ++y) {
      for (std::uint64_t x = 0; x < shape.width; ++x) {
        expected[index_of(to, z, y, x)] = source[index_of(from, z, y, x)];
      }
    }
  }
  TM_CHECK(host_driver().copy(place(destination, to), place(source, from), shape, stream).ok());
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(destination == expected);
}

TM_TEST("copies of one, two and three dimensions move exactly the box, for every way rows and planes can touch") {
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  for (const std::uint64_t width : {1, 2, 3, 4, 8, 16, 17, 64, 100}) {
    for (const std::uint64_t height : {1, 2, 7}) {
      for (const std::uint64_t depth : {1, 2, 5}) {
        const CopyShape shape{width, height, depth};
        const Layout tight{3, width, width * height};
        const Layout rows_apart{5, width + 9, (width + 9) * height};
        const Layout planes_apart{0, width, width * height + 11};
        const Layout all_apart{64, width + 1, (width + 1) * height + 5};
        const Layout barely{1, width + 4, (width + 4) * (height - 1) + width};  // planes touch, rows do not
        for (const Layout& to : {tight, rows_apart, planes_apart, all_apart, barely}) {
          for (const Layout& from : {tight, rows_apart, planes_apart, all_apart, barely}) {
            check_copy_case(shape, to, from, kDefaultStream);
          }
        }
        check_copy_case(shape, all_apart, tight, stream);
      }
    }
  }
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("a lone row needs no pitch, and a lone plane no plane pitch") {
  check_copy_case(CopyShape{100, 1, 1}, Layout{0, 0, 0}, Layout{7, 3, 1}, kDefaultStream);
  check_copy_case(CopyShape{100, 4, 1}, Layout{0, 128, 0}, Layout{7, 100, 1}, kDefaultStream);
  check_copy_case(CopyShape{100, 1, 4}, Layout{0, 0, 128}, Layout{7, 1, 100}, kDefaultStream);
}

TM_TEST("columns of one matrix may be copied to other columns of it") {
  Bytes matrix = random_bytes(64 * 64, 3);
  Bytes expected = matrix;
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < 20; ++column) expected[row * 64 + 40 + column] = matrix[row * 64 + column];
  }
  const Pitched from{address_of(matrix), 0, 64, 0};
  const Pitched to{address_of(matrix, 40), 0, 64, 0};
  TM_CHECK(host_driver().copy(to, from, CopyShape{20, 64}, kDefaultStream).ok());
  TM_CHECK(matrix == expected);
}

TM_TEST("a bad copy is refused with its reason and moves nothing") {
  const Bytes source = random_bytes(4096, 4);
  Bytes destination = random_bytes(4096, 5);
  const Bytes before = destination;
  const auto code_of = [&](const Pitched& to, const Pitched& from, const CopyShape& shape) {
    return host_driver().copy(to, from, shape, kDefaultStream).code();
  };
  const Pitched from{address_of(source), 0, 32, 256};
  const Pitched to{address_of(destination), 0, 32, 256};
  constexpr std::uint64_t kHuge = ~0ULL;
  TM_CHECK(code_of(to, from, CopyShape{0}) == Code::invalid_size);
  TM_CHECK(code_of(to, from, CopyShape{8, 0}) == Code::invalid_size);
  TM_CHECK(code_of(to, from, CopyShape{8, 1, 0}) == Code::invalid_size);
  TM_CHECK(code_of(to, from, CopyShape{kHuge}) == Code::invalid_size);
  TM_CHECK(code_of(to, from, CopyShape{1ULL << 32, 1ULL << 32}) == Code::invalid_size);
  TM_CHECK(code_of(to, from, CopyShape{8, 1ULL << 60, 1ULL << 60}) == Code::invalid_size);
  TM_CHECK(code_of(Pitched{kHuge - 4}, from, CopyShape{8}) == Code::invalid_size);
  TM_CHECK(code_of(Pitched{}, from, CopyShape{8}) == Code::invalid_argument);
  TM_CHECK(code_of(to, Pitched{}, CopyShape{8}) == Code::invalid_argument);
  TM_CHECK(code_of(to, from, CopyShape{33, 2}) == Code::invalid_argument);     // row pitch
  TM_CHECK(code_of(to, from, CopyShape{32, 9, 2}) == Code::invalid_argument);  // plane pitch
  TM_CHECK(code_of(Pitched{to.address, 0, kHuge}, from, CopyShape{8, 3}) == Code::invalid_size);
  TM_CHECK(code_of(Pitched{to.address, 0, 8, kHuge}, from, CopyShape{8, 1, 3}) == Code::invalid_size);
  TM_CHECK(code_of(Pitched{to.address, 3}, from, CopyShape{8}) == Code::invalid_argument);
  TM_CHECK(code_of(Pitched{from.address + 4}, from, CopyShape{8}) == Code::invalid_argument);  // overlap
  TM_CHECK(code_of(from, from, CopyShape{8}) == Code::invalid_argument);
  TM_CHECK(code_of(Pitched{from.address, -1}, Pitched{from.address + 7, -1}, CopyShape{8, 1, 1}) ==
           Code::invalid_argument);
  TM_CHECK(destination == before);
}

template <typename Element>
void check_fill_case(Element value, const CopyShape& shape, const Layout& layout, StreamId stream) {
  Bytes destination = random_bytes(1 << 14, 6);
  Bytes expected = destination;
  for (std::uint64_t z = 0; z < shape.depth; ++z) {
    for (std::uint64_t y = 0; y < shape.height; ++y) {
      for (std::uint64_t x = 0; x < shape.width; x += sizeof value) {
        std::memcpy(&expected[index_of(layout, z, y, x)], &value, sizeof value);
      }
    }
  }
  // Bits above the element do not matter.
  const std::uint64_t wide =
      sizeof value == 8 ? static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value) | (0xabULL << 56);
  TM_CHECK(host_driver().fill(place(destination, layout), shape, wide, sizeof value, stream).ok());
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(destination == expected);
}

TM_TEST("fills repeat elements of 1, 2, 4 and 8 bytes over exactly the box") {
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  for (const std::uint64_t width : {8, 24, 64, 104}) {
    for (const std::uint64_t height : {1, 5}) {
      for (const std::uint64_t depth : {1, 3}) {
        const CopyShape shape{width, height, depth};
        for (const Layout& layout :
             {Layout{0, width, width * height}, Layout{3, width + 5, (width + 5) * height + 7}}) {
          check_fill_case<std::uint8_t>(0x5a, shape, layout, kDefaultStream);
          check_fill_case<std::uint16_t>(0x1234, shape, layout, kDefaultStream);
          check_fill_case<std::uint32_t>(0xdeadbeef, shape, layout, kDefaultStream);
          check_fill_case<std::uint64_t>(0x0123456789abcdef, shape, layout, stream);
          check_fill_case<std::uint32_t>(0x77777777, shape, layout, stream);
        }
      }
    }
  }
  // Rows that end inside a word.
  check_fill_case<std::uint8_t>(7, CopyShape{13, 3}, Layout{1, 17, 0}, kDefaultStream);
  check_fill_case<std::uint16_t>(0x0102, CopyShape{14, 3}, Layout{1, 14, 0}, kDefaultStream);
  check_fill_case<std::uint32_t>(0x01020304, CopyShape{12, 3}, Layout{1, 12, 0}, kDefaultStream);
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("a bad fill is refused and changes nothing") {
  Bytes destination = random_bytes(256, 7);
  const Bytes before = destination;
  const Pitched to{address_of(destination), 0, 32, 64};
  const auto code_of = [&](const Pitched& where, const CopyShape& shape, std::uint32_t element_bytes) {
    return host_driver().fill(where, shape, 1, element_bytes, kDefaultStream).code();
  };
  for (const std::uint32_t bytes : {0U, 3U, 16U, 0x80000000U}) {
    TM_CHECK(code_of(to, CopyShape{48}, bytes) == Code::invalid_argument);
  }
  TM_CHECK(code_of(to, CopyShape{6}, 4) == Code::invalid_argument);
  TM_CHECK(code_of(to, CopyShape{0}, 1) == Code::invalid_size);
  TM_CHECK(code_of(to, CopyShape{33, 2}, 1) == Code::invalid_argument);
  TM_CHECK(code_of(Pitched{}, CopyShape{8}, 1) == Code::invalid_argument);
  TM_CHECK(destination == before);
}

TM_TEST("copies on a stream happen in its order") {
  StreamId stream = 0;
  TM_CHECK(host_driver().stream_create(0, &stream).ok());
  constexpr std::uint64_t kBytes = 1 << 20;
  const Bytes source = random_bytes(kBytes, 8);
  std::vector<Bytes> chain(8, Bytes(kBytes));
  const Bytes* from = &source;
  for (Bytes& to : chain) {
    TM_CHECK(host_driver().copy(Pitched{address_of(to)}, Pitched{address_of(*from)}, CopyShape{kBytes}, stream).ok());
    from = &to;
  }
  TM_CHECK(host_driver().fill(Pitched{address_of(chain[0])}, CopyShape{kBytes}, 0, 8, stream).ok());
  TM_CHECK(host_driver().stream_synchronize(stream).ok());
  TM_CHECK(chain.back() == source && chain.front() == Bytes(kBytes, 0));
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

}  // namespace
}  // namespace tensormem

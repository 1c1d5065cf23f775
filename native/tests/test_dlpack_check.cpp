// DLPack structs from outside: every rule that can be broken, broken on purpose, and random ones that must not be
// believed beyond the memory that is really there.
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/dlpack_check.hpp"
#include "tests/check.hpp"

using namespace tensormem;
using namespace tensormem::dlpack;

namespace {

// A tensor that is right in every way, to be spoiled in one.
struct Good {
  alignas(64) char bytes[256] = {};
  std::int64_t shape[2] = {2, 3};
  std::int64_t strides[2] = {3, 1};
  ManagedTensorVersioned managed{};

  Good() {
    managed.version = {1, 3};
    managed.dl_tensor = {bytes, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};
  }
  Tensor& tensor() { return managed.dl_tensor; }
  Code code() {
    Checked checked;
    return check_managed(managed, &checked).code();
  }
};

}  // namespace

TM_TEST("a right tensor passes, and its reach is told") {
  Good good;
  Checked checked;
  good.tensor().byte_offset = 8;
  TM_CHECK(check_managed(good.managed, &checked).ok());
  TM_CHECK(checked.first == reinterpret_cast<std::uint64_t>(good.bytes) + 8 && checked.lowest == checked.first);
  TM_CHECK(checked.nbytes == 24 && checked.width.bits == 32 && !checked.width.packed);
}

TM_TEST("negative strides move the lowest byte below the first element") {
  Good good;
  Checked checked;
  good.strides[0] = -3;
  good.tensor().byte_offset = 64;
  TM_CHECK(check_managed(good.managed, &checked).ok());
  TM_CHECK(checked.first - checked.lowest == 12 && checked.nbytes == 24);
}

TM_TEST("another major version is refused before anything else is read") {
  Good good;
  good.managed.version = {2, 0};
  good.tensor().shape = reinterpret_cast<std::int64_t*>(8);
  TM_CHECK(good.code() == Code::invalid_dlpack);
}

TM_TEST("dimensions that cannot be are refused") {
  Good good;
  good.tensor().ndim = -1;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.tensor().ndim = INT32_MAX;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.tensor().ndim = 2;
  good.tensor().shape = nullptr;
  TM_CHECK(good.code() == Code::invalid_dlpack);
}

TM_TEST("no dimensions need no shape") {
  Good good;
  good.tensor().ndim = 0;
  good.tensor().shape = nullptr;
  good.tensor().strides = nullptr;
  TM_CHECK(good.code() == Code::ok);
}

TM_TEST("NULL strides mean row-major") {
  Good good;
  Checked checked;
  good.tensor().strides = nullptr;
  TM_CHECK(check_managed(good.managed, &checked).ok() && checked.nbytes == 24);
}

TM_TEST("shapes that cannot be are refused") {
  Good good;
  good.shape[0] = -2;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.shape[0] = INT64_MAX;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.shape[0] = 2;
  good.strides[0] = INT64_MAX;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.strides[0] = INT64_MIN;
  TM_CHECK(good.code() == Code::invalid_dlpack);
}

TM_TEST("NULL data is refused where there are elements, and taken where there are none") {
  Good good;
  good.tensor().data = nullptr;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.shape[0] = 0;
  TM_CHECK(good.code() == Code::ok);
}

TM_TEST("unknown element types are refused") {
  Good good;
  for (const DataType unknown : {DataType{18, 8, 1}, DataType{255, 8, 1}, DataType{2, 33, 1}, DataType{2, 8, 1},
                                 DataType{4, 32, 1}, DataType{6, 1, 1}, DataType{0, 0, 1}, DataType{2, 32, 0}}) {
    good.tensor().dtype = unknown;
    TM_CHECK(good.code() == Code::invalid_dlpack);
  }
}

TM_TEST("misaligned addresses are refused for the element type, not for bytes") {
  Good good;
  good.tensor().byte_offset = 2;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.tensor().dtype = {1, 8, 1};
  TM_CHECK(good.code() == Code::ok);
}

TM_TEST("offsets and negative strides that leave the address space are refused") {
  Good good;
  good.tensor().byte_offset = ~0ULL - 3;
  TM_CHECK(good.code() == Code::invalid_dlpack);
  good.tensor().byte_offset = 0;
  good.tensor().data = reinterpret_cast<void*>(64);
  good.strides[0] = -1024;
  TM_CHECK(good.code() == Code::invalid_dlpack);
}

TM_TEST("a negative device id is refused") {
  Good good;
  good.tensor().device.device_id = -1;
  TM_CHECK(good.code() == Code::invalid_dlpack);
}

TM_TEST("elements of less than a byte are packed unless the flag says padded") {
  Good good;
  Checked checked;
  good.tensor().dtype = {17, 4, 1};
  TM_CHECK(check_managed(good.managed, &checked).ok() && checked.width.packed && checked.nbytes == 3);
  good.managed.flags = kSubbytePadded;
  TM_CHECK(check_managed(good.managed, &checked).ok() && !checked.width.packed && checked.nbytes == 6);
  good.managed.flags = 0;
  good.strides[1] = 2;
  TM_CHECK(good.code() == Code::invalid_dlpack);
}

// Random bytes in every field. What passes must reach only bytes between its lowest one and its end.
TM_TEST("random structs are refused or describe memory without overflow") {
  std::mt19937_64 random(11);
  std::int64_t shape[kMaxDims];
  std::int64_t strides[kMaxDims];
  int passed = 0;
  for (int round = 0; round < 200'000; ++round) {
    const auto number = [&]() -> std::int64_t {
      switch (random() % 4) {
        case 0:
          return static_cast<std::int64_t>(random());
        case 1:
          return static_cast<std::int64_t>(random() % 5) - 1;
        case 2:
          return static_cast<std::int64_t>(1ULL << (random() % 64));
        default:
          return static_cast<std::int64_t>(random() % 1000);
      }
    };
    ManagedTensorVersioned managed{};
    managed.version = {random() % 8 == 0 ? static_cast<std::uint32_t>(random()) : 1, 0};
    managed.flags = random() % 8;
    for (std::int64_t& each : shape) each = number();
    for (std::int64_t& each : strides) each = random() % 3 == 0 ? ~number() : number();
    managed.dl_tensor = {
        reinterpret_cast<void*>(number()),
        {static_cast<std::int32_t>(number()), static_cast<std::int32_t>(number())},
        random() % 16 == 0 ? static_cast<std::int32_t>(random()) : static_cast<std::int32_t>(random() % 4),
        {static_cast<std::uint8_t>(random() % 20), static_cast<std::uint8_t>(8 << random() % 4),
         static_cast<std::uint16_t>(random() % 3)},
        random() % 16 == 0 ? nullptr : shape,
        random() % 2 == 0 ? nullptr : strides,
        random() % 2 == 0 ? 0 : static_cast<std::uint64_t>(number())};
    Checked checked;
    if (!check_managed(managed, &checked).ok()) continue;
    ++passed;
    TM_CHECK(managed.version.major == 1 && checked.lowest <= checked.first);
    TM_CHECK(checked.lowest + checked.nbytes >= checked.lowest);
  }
  TM_CHECK(passed > 1000);
}

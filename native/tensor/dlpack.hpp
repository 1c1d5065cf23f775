// Owns: the structs and numbers of DLPack 1.3, declared from its specification, and nothing else of it.
// Must not know: who produces or consumes them. Names and layout are the standard's: other libraries read these bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensormem::dlpack {

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint32_t kMinor = 3;

inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kIsCopied = 2;
inline constexpr std::uint64_t kSubbytePadded = 4;

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; NULL means row-major, which only old producers say
  std::uint64_t byte_offset;
};

// Before version 1.
struct ManagedTensor {
  Tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(ManagedTensor*);
};

// From version 1 on. Everything up to `flags` stays where it is in every future version.
struct ManagedTensorVersioned {
  Version version;
  void* manager_ctx;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor dl_tensor;
};

// The table of functions that a type offers as `__dlpack_c_exchange_api__`.
struct ExchangeApiHeader {
  Version version;
  ExchangeApiHeader* prev_api;
};

using SetError = void (*)(void* error_ctx, const char* kind, const char* message);

struct ExchangeApi {
  ExchangeApiHeader header;
  int (*managed_tensor_allocator)(Tensor* prototype, ManagedTensorVersioned** out, void* error_ctx, SetError set_error);
  int (*managed_tensor_from_py_object_no_sync)(void* py_object, ManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object_no_sync)(ManagedTensorVersioned* tensor, void** out_py_object);
  int (*dltensor_from_py_object_no_sync)(void* py_object, Tensor* out);
  int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** out_stream);
};

static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24);
static_assert(sizeof(ManagedTensor) == 64);
static_assert(sizeof(ManagedTensorVersioned) == 80 && offsetof(ManagedTensorVersioned, dl_tensor) == 32);
static_assert(sizeof(ExchangeApi) == 56);

}  // namespace tensormem::dlpack

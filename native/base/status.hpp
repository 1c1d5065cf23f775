// Owns: how native code says "no". A Status is one pointer: null is success and costs one store; a failure
// owns its facts (numbers), the rule or system call that refused (static text), and the driver's code.
// Must not know: Python. `status_codes.hpp` is the one list that ties a Code to its Python class.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status_codes.hpp"

namespace tensormem {

enum class Code : std::uint8_t {
  ok = 0,
#define TM_CODE(identifier, python_class, ...) identifier,
  TM_STATUS_CODES(TM_CODE)
#undef TM_CODE
};

// Whether more memory, or a larger budget, would have made it work.
constexpr bool is_shortage(Code code) {
  return code == Code::out_of_memory || code == Code::out_of_budget || code == Code::out_of_physical_memory;
}

// The Python exception class of a code, e.g. "InvalidSize".
const char* class_name(Code code);

struct Failure {
  static constexpr int kMaxFacts = 4;
  Code code = Code::internal_error;
  std::int32_t driver_code = 0;  // errno, CUresult, hipError_t; 0 when no driver was involved
  const char* what = "";         // static text: the rule that was broken or the call that failed
  std::array<std::uint64_t, kMaxFacts> facts{};
  // What made it fail, when that is an object of the caller's world (a Python exception); opaque here, dropped once.
  void* cause = nullptr;
  void (*drop_cause)(void*) = nullptr;
};

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Status&& other) noexcept : failure_(std::exchange(other.failure_, nullptr)) {}
  Status& operator=(Status&& other) noexcept {
    std::swap(failure_, other.failure_);
    return *this;
  }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  ~Status() {
    if (failure_ != nullptr) [[unlikely]]
      dispose();
  }

  template <typename... Facts>
  static Status fail(Code code, const char* what, Facts... facts) noexcept {
    static_assert(sizeof...(facts) <= Failure::kMaxFacts);
    return Status(Failure{code, 0, what, {static_cast<std::uint64_t>(facts)...}, nullptr, nullptr});
  }
  // A refusal by the operating system or a device driver that no more exact code describes.
  static Status driver_error(std::int32_t driver_code, const char* call) noexcept {
    return Status(
        Failure{Code::driver_error, driver_code, call, {static_cast<std::uint64_t>(driver_code)}, nullptr, nullptr});
  }
  // The failure takes over `cause` and drops it at its end.
  static Status caused(Failure failure) noexcept { return Status(failure); }

  bool ok() const noexcept { return failure_ == nullptr; }
  explicit operator bool() const noexcept { return ok(); }
  Code code() const noexcept { return failure_ == nullptr ? Code::ok : failure_->code; }
  // Valid only when !ok().
  const Failure& failure() const noexcept { return *failure_; }
  // For a layer that asked for something else than its own caller did.
  void set_fact(int index, std::uint64_t value) noexcept;

 private:
  explicit Status(const Failure& failure) noexcept;
  void dispose() noexcept;

  Failure* failure_ = nullptr;
};

}  // namespace tensormem

// Leave the current function with the failure of `expression`, if it has one.
#define TM_TRY(expression)                                                            \
  do {                                                                                \
    if (::tensormem::Status tm_status_ = (expression); !tm_status_.ok()) [[unlikely]] \
      return tm_status_;                                                              \
  } while (false)

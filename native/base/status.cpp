#include "base/status.hpp"

#include <new>

namespace tensormem {

namespace {

// Served when there is no memory to describe a failure with; never freed.
Failure g_no_memory_for_facts{Code::out_of_memory, 0, "no memory left to describe the failure", {}, nullptr, nullptr};

}  // namespace

const char* class_name(Code code) {
  switch (code) {
    case Code::ok:
      return "";
#define TM_NAME(identifier, python_class, ...) \
  case Code::identifier:                       \
    return python_class;
      TM_STATUS_CODES(TM_NAME)
#undef TM_NAME
  }
  return "InternalError";
}

Status::Status(const Failure& failure) noexcept : failure_(new (std::nothrow) Failure(failure)) {
  if (failure_ != nullptr) return;
  failure_ = &g_no_memory_for_facts;
  if (failure.cause != nullptr) failure.drop_cause(failure.cause);
}

void Status::set_fact(int index, std::uint64_t value) noexcept {
  if (failure_ != &g_no_memory_for_facts) failure_->facts[static_cast<std::size_t>(index)] = value;
}

void Status::dispose() noexcept {
  if (failure_ == &g_no_memory_for_facts) return;
  if (failure_->cause != nullptr) failure_->drop_cause(failure_->cause);
  delete failure_;
}

}  // namespace tensormem

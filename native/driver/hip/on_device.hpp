// Owns: making one call on one device, for the files that implement HipApi.
// Must not know: which call.
#pragma once

#include "driver/hip/hip_api.hpp"

namespace tensormem::hip {

inline Status answer(Result result, const char* function) noexcept {
  if (result == cuda::kSuccess) [[likely]]
    return {};
  return gpu::vendor_error(gpu::ErrorNumbers::hip, result, function);
}

// For functions that older runtimes do not have.
inline Status missing(const char* function) noexcept { return Status::fail(Code::not_supported, function); }

template <typename Call>
Status HipApi::on_device(std::int32_t device, const char* function, Call call) {
  const BlockingRegion region;  // one for all of them
  int before = 0;
  TM_TRY(answer(f_.hipGetDevice(&before), "hipGetDevice"));
  if (before == device) return answer(call(), function);
  TM_TRY(answer(f_.hipSetDevice(device), "hipSetDevice"));
  const Result result = call();
  // The caller's device comes back whatever the call said; a refusal is tried once more.
  if (f_.hipSetDevice(before) != cuda::kSuccess) (void)f_.hipSetDevice(before);
  return answer(result, function);
}

template <typename Call>
Status HipApi::beside_captures(std::int32_t device, const char* function, Call call) {
  return on_device(device, function, [&] {
    if (f_.hipThreadExchangeStreamCaptureMode == nullptr) return call();
    // What cannot be relaxed is called all the same: without a capture it makes no difference.
    int mode = cuda::kCaptureRelaxed;
    const bool relaxed = f_.hipThreadExchangeStreamCaptureMode(&mode) == cuda::kSuccess;
    const Result result = call();
    if (relaxed && f_.hipThreadExchangeStreamCaptureMode(&mode) != cuda::kSuccess)
      (void)f_.hipThreadExchangeStreamCaptureMode(&mode);
    return result;
  });
}

inline void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace tensormem::hip

// Owns: making one call in one device's context, or on one stream, for the files that implement CudaApi.
// Must not know: which call.
#pragma once

#include "driver/cuda/cuda_api.hpp"

namespace tensormem::cuda {

inline Status answer(Result result, const char* function) noexcept {
  if (result == kSuccess) [[likely]]
    return {};
  return gpu::vendor_error(gpu::ErrorNumbers::cuda, result, function);
}

// For functions that older drivers do not have.
inline Status missing(const char* function) noexcept { return Status::fail(Code::not_supported, function); }

template <typename Call>
Status CudaApi::in_context(std::int32_t device, const char* function, Call call) {
  const BlockingRegion region;  // one for all of them
  ContextHandle wanted = nullptr;
  ContextHandle current = nullptr;
  TM_TRY(context_of(device, &wanted));
  TM_TRY(answer(f_.cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  if (current == wanted) return answer(call(), function);
  TM_TRY(answer(f_.cuCtxPushCurrent(wanted), "cuCtxPushCurrent"));
  const Result result = call();
  // The caller's context comes back whatever the call said; a refusal to pop is tried once more.
  if (f_.cuCtxPopCurrent(&current) != kSuccess) (void)f_.cuCtxPopCurrent(&current);
  return answer(result, function);
}

template <typename Call>
Status CudaApi::beside_captures(std::int32_t device, const char* function, Call call) {
  return in_context(device, function, [&] {
    if (f_.cuThreadExchangeStreamCaptureMode == nullptr) return call();
    // What cannot be relaxed is called all the same: without a capture it makes no difference.
    int mode = kCaptureRelaxed;
    const bool relaxed = f_.cuThreadExchangeStreamCaptureMode(&mode) == kSuccess;
    const Result result = call();
    if (relaxed && f_.cuThreadExchangeStreamCaptureMode(&mode) != kSuccess)
      (void)f_.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
  });
}

// For the stream-ordered allocator, which takes the context of the stream it is given and wants a current one for the
// default streams alone.
template <typename Call>
Status CudaApi::on_stream(gpu::StreamRef stream, const char* function, Call call) {
  if (reinterpret_cast<std::uintptr_t>(stream.handle) > kPerThreadStream) return answer(call(), function);
  return in_context(stream.device, function, call);
}

}  // namespace tensormem::cuda

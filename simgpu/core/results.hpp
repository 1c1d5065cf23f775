// Owns: the answers a simulated driver gives, by the numbers that CUDA and HIP have in common.
// Must not know: what either of them calls an answer; the two front ends do.
#pragma once

namespace simgpu {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kAlreadyMapped = 208,
  kNotMapped = 211,
  kPeerAccessUnsupported = 217,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kPrimaryContextActive = 708,
  kContextIsDestroyed = 709,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kUnknown = 999,
};

}  // namespace simgpu

// Leave the current function with the answer of `expression`, unless it is success.
#define SIM_TRY(expression)                                                                                \
  do {                                                                                                     \
    if (const ::simgpu::Result sim_result_ = (expression); sim_result_ != ::simgpu::kSuccess) [[unlikely]] \
      return sim_result_;                                                                                  \
  } while (false)

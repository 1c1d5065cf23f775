// Owns: a function of a vendor's driver, found at run time, and the one rule of calling it: any of them may wait for a
// device, so the caller's lock (Python's GIL) is let go around each call. A table of them cannot be called otherwise.
// Must not know: which function it is. The caller holds no lock of ours that is waited for with the GIL held.
#pragma once

#include <cstddef>

#include "base/blocking.hpp"

namespace tensormem::gpu {

template <typename Signature>
class DriverFunction;

template <typename Answer, typename... Arguments>
class DriverFunction<Answer(Arguments...)> {
 public:
  using Pointer = Answer (*)(Arguments...);

  void set(void* found) noexcept { function_ = reinterpret_cast<Pointer>(found); }
  bool operator==(std::nullptr_t) const noexcept { return function_ == nullptr; }

  Answer operator()(Arguments... arguments) const {
    const BlockingRegion region;
    return function_(arguments...);
  }

 private:
  Pointer function_ = nullptr;
};

}  // namespace tensormem::gpu

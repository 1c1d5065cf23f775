// Owns: a second chance. When the upstream has no memory, a callback is asked; it may free something and say "again".
// Only shortage is asked about: a wrong size or a destroyed stream will not get better.
// Must not know: what the callback does. It is called without any lock of ours.
#pragma once

#include <functional>

#include "resource/resource_adaptor.hpp"

namespace tensormem {

class FailureCallbackResourceAdaptor final : public ResourceAdaptor {
 public:
  // Sets `*again`; its own failure ends the allocation.
  using Callback = std::function<Status(std::uint64_t nbytes, bool* again)>;

  FailureCallbackResourceAdaptor(ResourcePtr upstream, Callback callback)
      : ResourceAdaptor(std::move(upstream)), callback_(std::move(callback)) {}

  Status do_allocate(const AllocRequest& request, Block* block) override {
    while (true) {
      Status tried = upstream().allocate(request, block);
      if (!is_shortage(tried.code())) return tried;
      bool again = false;
      TM_TRY(callback_(request.nbytes, &again));
      if (!again) return tried;
    }
  }

 private:
  const Callback callback_;
};

}  // namespace tensormem

// Owns: touching memory before it is needed: every block is prefetched to a device on its stream as it is handed out.
// The memory of a GPU does not move, so there is nothing to prefetch.
// Must not know: what prefetching costs or means on a driver.
#pragma once

#include "resource/resource_adaptor.hpp"

namespace tensormem {

class PrefetchResourceAdaptor final : public ResourceAdaptor {
 public:
  // `target` is the device to move the bytes to; -1 is the host.
  PrefetchResourceAdaptor(ResourcePtr upstream, std::int32_t target)
      : ResourceAdaptor(std::move(upstream)), target_(target) {}

  Status do_allocate(const AllocRequest& request, Block* block) override {
    Block fresh;
    TM_TRY(upstream().allocate(request, &fresh));
    if (space().kind == SpaceKind::gpu) {
      *block = fresh;
      return {};
    }
    Status prefetched = driver().prefetch(fresh.address, fresh.nbytes, target_, request.stream);
    if (prefetched.ok()) {
      *block = fresh;
      return {};
    }
    // A block that its own upstream does not take back stays counted there; the first failure is the one to tell.
    BlockState end{};
    (void)upstream().deallocate(fresh, request.stream, &end).ok();
    return prefetched;
  }

 private:
  const std::int32_t target_;
};

}  // namespace tensormem

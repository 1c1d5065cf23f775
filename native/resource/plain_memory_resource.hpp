// Owns: the leaf over a driver's plain allocation: host, pinned, managed and GPU memory.
// Must not know: which driver it is, but for the host's zero pages.
#pragma once

#include "driver/host/host_driver.hpp"
#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

class PlainMemoryResource final : public LeafMemoryResource {
 public:
  PlainMemoryResource(Driver& driver, std::int32_t device, const AllocationOptions& options)
      : LeafMemoryResource(driver, device, space_of(driver, device, options.kind)), options_(options) {}
  ~PlainMemoryResource() override { finish(); }

 private:
  Status take(const AllocRequest& request, std::uint64_t* address) override {
    return driver().allocate(device(), request.nbytes, options_for(request.alignment, request.zeroed), address);
  }
  Status give_back(const BlockEntry& entry) override {
    return driver().deallocate(device(), entry.address, entry.nbytes,
                               options_for(1ULL << entry.alignment_log2, entry.zeroed));
  }
  // The host has zero pages for nothing; a GPU would have to fill, which whoever asked can do in stream order.
  bool can_zero(const AllocRequest& /*request*/) const override { return &driver() == &host_driver(); }
  AllocationOptions options_for(std::uint64_t alignment, bool zeroed) const {
    AllocationOptions options = options_;
    options.alignment = alignment;
    options.zeroed = options.zeroed || zeroed;
    return options;
  }

  const AllocationOptions options_;
};

}  // namespace tensormem

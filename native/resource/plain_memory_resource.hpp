// Owns: the leaf over a driver's plain allocation: host, pinned, managed and GPU memory.
// Must not know: which driver it is.
#pragma once

#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

class PlainMemoryResource final : public LeafMemoryResource {
 public:
  PlainMemoryResource(Driver& driver, std::int32_t device, const AllocationOptions& options)
      : LeafMemoryResource(driver, device, space_of(driver, device, options.kind)), options_(options) {}
  ~PlainMemoryResource() override { finish(); }

 private:
  Status take(const AllocRequest& request, std::uint64_t* address) override {
    return driver().allocate(device(), request.nbytes, options_for(request.alignment), address);
  }
  Status give_back(const BlockEntry& entry) override {
    return driver().deallocate(device(), entry.address, entry.nbytes, options_for(1ULL << entry.alignment_log2));
  }
  AllocationOptions options_for(std::uint64_t alignment) const {
    AllocationOptions options = options_;
    options.alignment = alignment;
    return options;
  }

  const AllocationOptions options_;
};

}  // namespace tensormem

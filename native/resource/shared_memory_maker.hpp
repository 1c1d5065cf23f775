// Owns: how the leaf of shared memory gets its bytes: a new file in memory, or one that is attached already and is
// adopted. Must not know: storages, how a descriptor travels.
#pragma once

#include <memory>
#include <utility>

#include "driver/host/shared_memory.hpp"
#include "resource/memory_maker.hpp"

namespace tensormem {

using SharedMemoryPtr = std::shared_ptr<SharedMemory>;

class SharedMemoryMaker final : public MemoryMaker {
 public:
  // `options.name` must live as long as the maker.
  explicit SharedMemoryMaker(const SharedMemoryOptions& options = {}) : options_(options) {}
  explicit SharedMemoryMaker(SharedMemoryPtr adopted) : adopted_(std::move(adopted)) {}

  Status make(const AllocRequest& request, std::unique_ptr<KindMemory>* made) noexcept override;
  bool makes_zeros() const noexcept override { return adopted_ == nullptr; }
  // What was made last, for whoever owns it besides the leaf.
  const SharedMemoryPtr& made() const { return made_; }

 private:
  const SharedMemoryOptions options_;
  const SharedMemoryPtr adopted_;
  SharedMemoryPtr made_;
};

// For blocks that nobody owns besides the leaf; it remembers nothing, so that every thread may ask it.
std::shared_ptr<MemoryMaker> standard_shared_memory_maker();

}  // namespace tensormem

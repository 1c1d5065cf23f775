#include "resource/shared_memory_maker.hpp"

#include <new>

#include "resource/resource.hpp"

namespace tensormem {

namespace {

class SharedKindMemory final : public KindMemory {
 public:
  explicit SharedKindMemory(SharedMemoryPtr memory) : memory_(std::move(memory)) {}
  std::uint64_t address() const noexcept override { return memory_->address(); }
  Status release() noexcept override {
    memory_->release();
    return {};
  }

 private:
  const SharedMemoryPtr memory_;
};

Status no_room(const AllocRequest& request) {
  return Status::fail(Code::out_of_memory, "no memory to remember one more piece of shared memory", request.nbytes);
}

Status create(const AllocRequest& request, const SharedMemoryOptions& options, SharedMemoryPtr* memory) {
  *memory = std::make_shared<SharedMemory>();
  return (*memory)->create(request.nbytes, options);
}

class StandardMaker final : public MemoryMaker {
  Status make(const AllocRequest& request, std::unique_ptr<KindMemory>* made) noexcept override try {
    SharedMemoryPtr memory;
    TM_TRY(create(request, {}, &memory));
    *made = std::make_unique<SharedKindMemory>(std::move(memory));
    return {};
  } catch (const std::bad_alloc&) {
    return no_room(request);
  }
};

}  // namespace

Status SharedMemoryMaker::make(const AllocRequest& request, std::unique_ptr<KindMemory>* made) noexcept try {
  SharedMemoryPtr memory = adopted_;
  if (adopted_ == nullptr) {
    TM_TRY(create(request, options_, &memory));
  } else if (request.nbytes > adopted_->nbytes()) {
    return Status::fail(Code::not_supported, "more room around memory of another process, which is as large as it is");
  }
  *made = std::make_unique<SharedKindMemory>(memory);
  made_ = std::move(memory);
  return {};
} catch (const std::bad_alloc&) {
  return no_room(request);
}

std::shared_ptr<MemoryMaker> standard_shared_memory_maker() { return std::make_shared<StandardMaker>(); }

}  // namespace tensormem

#include "resource/shared_memory_maker.hpp"

#include <new>

#include "base/align.hpp"
#include "driver/host/os.hpp"
#include "resource/resource.hpp"

namespace tensormem {

namespace {

class SharedKindMemory final : public KindMemory {
 public:
  explicit SharedKindMemory(SharedMemoryPtr memory, std::uint64_t alignment = 1)
      : memory_(std::move(memory)), alignment_(alignment) {}
  std::uint64_t address() const noexcept override { return align_up(memory_->address(), alignment_); }
  Status release() noexcept override {
    memory_->release();
    return {};
  }

 private:
  const SharedMemoryPtr memory_;
  const std::uint64_t alignment_;
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
    AllocRequest wanted = request;
    // Nobody maps what is around such a block, so it may begin later than its file.
    if (request.alignment > host::os::page_size()) wanted.nbytes += request.alignment;
    SharedMemoryPtr memory;
    if (Status created = create(wanted, {}, &memory); !created.ok()) return told(std::move(created), request);
    *made = std::make_unique<SharedKindMemory>(std::move(memory), request.alignment);
    return {};
  } catch (const std::bad_alloc&) {
    return no_room(request);
  }

  bool makes_zeros() const noexcept override { return true; }

  // A size that is fine for a block and too much for a file is a shortage.
  static Status told(Status created, const AllocRequest& request) {
    const bool too_much = created.code() == Code::invalid_size || created.code() == Code::out_of_virtual_memory;
    return too_much ? Status::fail(Code::out_of_memory, "shared memory", request.nbytes) : std::move(created);
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

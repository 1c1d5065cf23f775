#include "resource/device_hooks.hpp"

#include <cstdio>
#include <new>
#include <optional>
#include <utility>

namespace tensormem {

namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

Status import_stream(const Resource& resource, void* handle, StreamId* stream) {
  // The null handle is every vendor's default stream.
  if (handle == nullptr) {
    *stream = kDefaultStream;
    return {};
  }
  return resource.driver().stream_import(resource.device(), address_of(handle), stream);
}

Status check_device(std::int32_t device) {
  if (device >= 0 && device < DeviceHooks::kMaxDevices) return {};
  return Status::fail(Code::invalid_argument, "a device is a number from 0 to 127");
}

Status not_ours(void* pointer) {
  return Status::fail(Code::foreign_block, "no block was handed out here by this hook, or it was freed before", 0,
                      address_of(pointer));
}

// Says what a Status says, without needing memory for it.
class AllocationRefused : public std::bad_alloc {
 public:
  AllocationRefused(const Failure& failure, ssize_t nbytes, int device) noexcept {
    std::snprintf(text_, sizeof text_, "tensormem could not allocate %zd bytes on device %d: %s: %s", nbytes, device,
                  class_name(failure.code), failure.what);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[256];
};

}  // namespace

DeviceHooks& DeviceHooks::instance() {
  static auto* const hooks = new DeviceHooks;
  return *hooks;
}

Status DeviceHooks::set(std::int32_t device, ResourcePtr resource, TagId tag) noexcept {
  TM_TRY(check_device(device));
  Source source{std::move(resource), tag};
  const std::lock_guard lock(mutex_);
  // What was there before goes after the lock, with `source`.
  std::swap(sources_[static_cast<std::size_t>(device)], source);
  return {};
}

Status DeviceHooks::allocate(ssize_t nbytes, std::int32_t device, void* stream, void** pointer) noexcept {
  *pointer = nullptr;
  TM_TRY(check_device(device));
  if (nbytes < 0) return Status::fail(Code::invalid_size, "a size is not negative", 0);
  if (nbytes == 0) return {};
  Source source;
  {
    const std::lock_guard lock(mutex_);
    source = sources_[static_cast<std::size_t>(device)];
  }
  if (source.resource == nullptr)
    return Status::fail(Code::invalid_argument, "no resource is registered for this device");
  AllocRequest request{.nbytes = static_cast<std::uint64_t>(nbytes), .tag = source.tag};
  TM_TRY(import_stream(*source.resource, stream, &request.stream));
  return book_.allocate(source.resource, request, pointer);
}

Status DeviceHooks::deallocate(void* pointer, void* stream) noexcept {
  if (pointer == nullptr) return {};
  const std::optional<BookEntry> entry = book_.find(address_of(pointer));
  if (!entry) return not_ours(pointer);
  StreamId queue = kDefaultStream;
  TM_TRY(import_stream(*entry->resource, stream, &queue));
  return book_.deallocate(address_of(pointer), queue);
}

Status DeviceHooks::record_use(void* pointer, void* stream) noexcept {
  if (pointer == nullptr) return {};
  const std::optional<BookEntry> entry = book_.find(address_of(pointer));
  if (!entry) return not_ours(pointer);
  StreamId queue = kDefaultStream;
  TM_TRY(import_stream(*entry->resource, stream, &queue));
  return book_.record_use(address_of(pointer), queue);
}

}  // namespace tensormem

using tensormem::DeviceHooks;
using tensormem::Status;

void* tensormem_allocate(ssize_t nbytes, int device, void* stream) {
  void* pointer = nullptr;
  Status done = DeviceHooks::instance().allocate(nbytes, device, stream, &pointer);
  if (!done.ok()) DeviceHooks::instance().refusals().add(std::move(done), device);
  return pointer;
}

void* tensormem_allocate_or_throw(ssize_t nbytes, int device, void* stream) {
  void* pointer = nullptr;
  Status done = DeviceHooks::instance().allocate(nbytes, device, stream, &pointer);
  if (done.ok()) return pointer;
  const tensormem::AllocationRefused refused(done.failure(), nbytes, device);
  DeviceHooks::instance().refusals().add(std::move(done), device);
  throw refused;
}

void tensormem_deallocate(void* pointer, ssize_t, int, void* stream) {
  Status done = DeviceHooks::instance().deallocate(pointer, stream);
  if (!done.ok()) DeviceHooks::instance().refusals().add(std::move(done));
}

void tensormem_record_stream(void* pointer, void* stream) {
  Status done = DeviceHooks::instance().record_use(pointer, stream);
  if (!done.ok()) DeviceHooks::instance().refusals().add(std::move(done));
}

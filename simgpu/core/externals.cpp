#include "core/externals.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "core/machine.hpp"
#include "driver/host/os.hpp"

namespace simgpu {

namespace {

using tensormem::host::os::page_size;

std::uint64_t round_up(std::uint64_t size) { return (size + page_size() - 1) & ~(page_size() - 1); }

}  // namespace

Externals::~Externals() {
  for (const auto& [handle, external] : externals_) ::close(external->fd);
}

Result Externals::import(Device& device, int fd, std::uint64_t size, void** handle) {
  struct stat facts{};
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return kInvalidValue;
  if (size == 0 || facts.st_size < 0 || size > static_cast<std::uint64_t>(facts.st_size)) return kInvalidValue;
  auto external = std::make_unique<External>();
  *external = {&device, size, fd};
  *handle = external.get();
  externals_.emplace(external.get(), std::move(external));
  return kSuccess;
}

Result Externals::map(void* handle, std::uint64_t offset, std::uint64_t size, std::uint64_t* address) {
  const auto found = externals_.find(handle);
  if (found == externals_.end()) return kInvalidHandle;
  const External& external = *found->second;
  if (size == 0 || offset > external.size || size > external.size - offset) return kInvalidValue;
  const std::uint64_t before = offset % page_size();
  auto window = std::make_unique<Window>();
  if (window->open(round_up(before + size), page_size(), false) != 0) return kOutOfMemory;
  if (window->map_file(window->start(), window->size(), external.fd, offset - before) != 0) return kOperatingSystem;
  Range range;
  range.start = window->start() + before;
  range.size = size;
  range.kind = Kind::external;
  range.device = external.device;
  range.window = window.get();
  machine_.memory.add_window(*window);
  machine_.memory.add(range);
  *address = range.start;
  windows_.emplace(range.start, std::move(window));
  return kSuccess;
}

Result Externals::destroy(void* handle) {
  const auto found = externals_.find(handle);
  if (found == externals_.end()) return kInvalidHandle;
  ::close(found->second->fd);
  externals_.erase(found);
  return kSuccess;
}

void Externals::unmap(std::uint64_t address) {
  const auto found = windows_.find(address);
  if (found == windows_.end()) return;
  machine_.memory.remove_window(*found->second);
  windows_.erase(found);
}

}  // namespace simgpu

// Memory of others: imported by descriptor, mapped for a device, and given back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <new>

#include "base/align.hpp"
#include "base/ending.hpp"
#include "driver/gpu/gpu_driver.hpp"

namespace tensormem {

namespace {

Status check_descriptor(std::int32_t fd, std::uint64_t nbytes) {
  struct stat facts{};
  if (nbytes == 0 || nbytes > kNoOverflowLimit) return Status::fail(Code::invalid_size, "no size of memory", nbytes);
  if (fstat(fd, &facts) != 0) return Status::fail(Code::invalid_argument, "not an open file descriptor");
  // A descriptor that does not tell its size (0) is the driver's to judge.
  const auto size = static_cast<std::uint64_t>(facts.st_size > 0 ? facts.st_size : 0);
  if (size != 0 && nbytes > size)
    return Status::fail(Code::invalid_size, "more bytes than there are behind the descriptor", nbytes);
  return {};
}

}  // namespace

Status GpuDriver::external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes,
                                  std::uint64_t* address) try {
  TM_TRY(check_device(device));
  TM_TRY(check_descriptor(fd, nbytes));
  platform_.destroy_left();
  // The vendor's driver keeps the descriptor it is given, so it is given one of its own.
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return Status::fail(Code::invalid_argument, "the descriptor cannot be duplicated");
  gpu::ExternalRef made{nullptr, device, 0};
  if (Status imported = api_.external_import(device, copy, nbytes, &made.handle); !imported.ok()) {
    close(copy);
    return explain_shortage(std::move(imported), device, nbytes, Code::out_of_memory);
  }
  if (Status mapped = api_.external_map(made, nbytes, &made.address); !mapped.ok()) {
    made.address = 0;
    platform_.release_external(made);
    return explain_shortage(std::move(mapped), device, nbytes, Code::out_of_memory);
  }
  try {
    const std::lock_guard lock(platform_.mutex);
    platform_.externals[made.address] = made;
  } catch (const std::bad_alloc&) {
    platform_.release_external(made);
    throw;
  }
  *address = made.address;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note an address", sizeof(gpu::ExternalRef));
}

Status GpuDriver::external_release(std::uint64_t address) {
  gpu::ExternalRef gone;
  {
    const std::lock_guard lock(platform_.mutex);
    const auto found = platform_.externals.find(address);
    if (found == platform_.externals.end())
      return Status::fail(Code::invalid_argument, "no external memory was imported at this address");
    gone = found->second;
    platform_.externals.erase(found);
  }
  // A driver that is closed, or the parent's, took the memory with it, and the end of the process will.
  if (!platform_.is_lost() && !is_ending()) platform_.release_external(gone);
  return {};
}

}  // namespace tensormem

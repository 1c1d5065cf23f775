#include "driver/host/physical_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/host/aligned_range.hpp"
#include "driver/host/os.hpp"
#include "driver/host/spare_files.hpp"

namespace tensormem::host {

namespace {

// A commit of small pages is done in parts, so that a signal interrupts little of it.
constexpr std::uint64_t kCommitStepBytes = 32ULL << 20;

Status check_size(std::uint64_t size) {
  if (size == 0 || size > kNoOverflowLimit) {
    return Status::fail(Code::invalid_size, size == 0 ? "no bytes asked for" : "larger than any memory", size);
  }
  if (!is_aligned(size, os::page_size())) {
    return Status::fail(Code::invalid_alignment, "the size is not a multiple of the granularity", size,
                        os::page_size());
  }
  return {};
}

int commit_small_pages(int fd, std::uint64_t offset, std::uint64_t size) {
  for (std::uint64_t done = 0; done < size; done += kCommitStepBytes) {
    const int error = os::allocate_range(fd, offset + done, std::min(kCommitStepBytes, size - done));
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace

// --- The table ---------------------------------------------------------------------------------------------------

// In the table from the start, so that a fork in the middle finds its file.
Status PhysicalMemory::add(std::unique_ptr<Physical> physical, Physical** added) noexcept try {
  const std::lock_guard lock(mutex_);
  retry_leftovers();
  physical->handle = next_handle_;
  *added = physical.get();
  all_.emplace(next_handle_, std::move(physical));
  ++next_handle_;
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note physical memory", sizeof(Physical));
}

Status PhysicalMemory::find(PhysicalHandle handle, Physical** physical) const noexcept {
  const auto found = all_.find(handle);
  if (found == all_.end() || found->second->state != Physical::State::live) {
    return Status::fail(Code::invalid_argument, "no such physical memory (destroyed, or not made by this driver)");
  }
  *physical = found->second.get();
  return {};
}

Status PhysicalMemory::create(std::uint64_t size, const PhysicalOptions& options, PhysicalHandle* handle) noexcept {
  TM_TRY(check_size(size));
  Status made = create_once(size, options, handle);
  // Shared memory that is kept for later is the first to go.
  if (made.code() == Code::out_of_physical_memory && yield_spare_files()) made = create_once(size, options, handle);
  return made;
}

Status PhysicalMemory::create_once(std::uint64_t size, const PhysicalOptions& options,
                                   PhysicalHandle* handle) noexcept {
  TM_TRY(gauge_.claim(size));
  std::unique_ptr<Physical> fresh(new (std::nothrow) Physical);
  Physical* physical = nullptr;
  Status status;
  if (fresh == nullptr) {
    status = Status::fail(Code::out_of_memory, "no memory to note physical memory", sizeof(Physical));
  } else {
    fresh->size = size;
    fresh->owns_file = options.exportable;
    status = add(std::move(fresh), &physical);
  }
  if (status.ok()) status = make(*physical, options);
  gauge_.give_back(size);
  if (!status.ok()) {
    if (physical != nullptr) discard(physical);
    return status;
  }
  const std::lock_guard lock(mutex_);
  physical->state = Physical::State::live;
  *handle = physical->handle;
  return {};
}

Status PhysicalMemory::make(Physical& physical, const PhysicalOptions& options) noexcept {
  if (physical.owns_file) {
    TM_TRY(open_own_file(physical));
  } else {
    const std::lock_guard lock(mutex_);
    TM_TRY(arena_.take(physical.size, options.placement, &physical.slot));
    physical.fd = arena_.fd();
    physical.file_offset = physical.slot.offset;
    physical.file_id = MemfdArena::kFileId;
  }
  return commit(physical, options.huge_pages);
}

Status PhysicalMemory::open_own_file(Physical& physical) noexcept {
  int fd = -1;
  if (const int error = os::create_memfd("tensormem-shared", &fd); error != 0) {
    return Status::driver_error(error, "memfd_create");
  }
  {
    const std::lock_guard lock(mutex_);
    physical.fd = fd;
    physical.file_id = physical.handle;
  }
  if (const int error = os::resize_file(fd, physical.size); error != 0) return Status::driver_error(error, "ftruncate");
  // Nobody who gets the descriptor can take bytes away from under our mappings.
  if (const int error = os::seal_size(fd); error != 0) return Status::driver_error(error, "fcntl(F_ADD_SEALS)");
  return {};
}

Status PhysicalMemory::destroy(PhysicalHandle handle) noexcept {
  Physical* physical = nullptr;
  {
    const std::lock_guard lock(mutex_);
    TM_TRY(find(handle, &physical));
    physical->state = Physical::State::destroyed;
    if (physical->mappings.load(std::memory_order_relaxed) != 0) return {};
  }
  discard(physical);
  return {};
}

// Nobody else can reach it any more. Giving back the pages is slow, so that is done without the lock.
void PhysicalMemory::discard(Physical* physical) noexcept {
  const bool has_slot = !physical->owns_file && physical->slot.size != 0 && !physical->from_parent;
  const int refused = has_slot ? MemfdArena::punch(physical->fd, physical->slot) : 0;
  const int own_fd = physical->owns_file ? physical->fd : -1;
  {
    const std::lock_guard lock(mutex_);
    if (!physical->from_parent) retry_leftovers();
    if (has_slot && refused == 0) arena_.give_back(physical->slot);
    if (has_slot && refused != 0) arena_.keep_unpunched(physical->slot);
    all_.erase(physical->handle);
  }
  if (own_fd >= 0) (void)os::close(own_fd);
}

Status PhysicalMemory::acquire(PhysicalHandle handle, Physical** physical) noexcept {
  const std::lock_guard lock(mutex_);
  Physical* found = nullptr;
  TM_TRY(find(handle, &found));
  if (found->from_parent) {
    return Status::fail(Code::invalid_argument, "the physical memory was made before a fork and belongs to the parent");
  }
  found->mappings.fetch_add(1, std::memory_order_relaxed);
  *physical = found;
  return {};
}

void PhysicalMemory::release(Physical* physical) noexcept {
  {
    const std::lock_guard lock(mutex_);
    TM_ASSERT(physical->mappings.load() > 0);
    const bool was_last = physical->mappings.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (!was_last || physical->state != Physical::State::destroyed) return;
  }
  discard(physical);
}

// --- Committing pages --------------------------------------------------------------------------------------------

Status PhysicalMemory::commit(Physical& physical, bool huge) noexcept {
  const bool whole_huge_pages = is_aligned(physical.file_offset | physical.size, kHugePageBytes);
  if (huge && commit_huge(physical) && whole_huge_pages) {
    physical.huge = true;
    return {};
  }
  // Pages that are there already stay as they are.
  const int error = commit_small_pages(physical.fd, physical.file_offset, physical.size);
  if (error == 0) return {};
  if (error != ENOMEM && error != ENOSPC) return Status::driver_error(error, "fallocate");
  MemoryInfo now;
  if (!gauge_.read(&now).ok()) now = MemoryInfo{};
  return Status::fail(Code::out_of_physical_memory, "the kernel could not commit the pages", physical.size,
                      now.free_bytes);
}

bool PhysicalMemory::commit_huge(Physical& physical) noexcept {
  if (physical.size < kHugePageBytes || !huge_pages_.work()) return false;
  Window window;
  if (const int error = open_window(physical, &window); error != 0) {
    huge_pages_.failed(error);
    return false;
  }
  const std::uint64_t view = window.address + physical.file_offset % kHugePageBytes;
  const bool made = huge_pages_.make(physical.fd, physical.file_offset, physical.size, view);
  close_window(window);
  return made;
}

// A collapse works on a mapping. Ours cannot be touched and lives for one commit; what it leaves in the page tables
// goes with it. A fork waits for the lock, so no child ever inherits a window.
int PhysicalMemory::open_window(const Physical& physical, Window* window) noexcept {
  const std::uint64_t into = physical.file_offset % kHugePageBytes;
  const Window wanted{0, align_up(into + physical.size, os::page_size())};
  const std::lock_guard lock(mutex_);
  std::uint64_t address = 0;
  int error = reserve_aligned(wanted.size, kHugePageBytes, &address);
  if (error != 0) return error;
  error = os::map_file_over(address + into, physical.size, physical.fd, physical.file_offset, os::Protection::none);
  if (error == 0) error = os::advise(address, wanted.size, os::Advice::not_in_children);
  *window = Window{address, wanted.size};
  if (error != 0 && os::unmap(address, wanted.size) != 0) remember_window(*window);
  return error;
}

void PhysicalMemory::close_window(const Window& window) noexcept {
  if (os::unmap(window.address, window.size) == 0) return;
  const std::lock_guard lock(mutex_);
  remember_window(window);
}

void PhysicalMemory::remember_window(const Window& window) noexcept try {
  leftover_windows_.push_back(window);
} catch (const std::bad_alloc&) {
  // Untouchable addresses stay taken; there is no memory to remember them with.
}

void PhysicalMemory::retry_leftovers() noexcept {
  std::erase_if(leftover_windows_, [](const Window& window) { return os::unmap(window.address, window.size) == 0; });
  arena_.retry_unpunched();
}

// --- Between processes -------------------------------------------------------------------------------------------

Status PhysicalMemory::export_fd(PhysicalHandle handle, std::int32_t* fd) const noexcept {
  const std::lock_guard lock(mutex_);
  Physical* physical = nullptr;
  TM_TRY(find(handle, &physical));
  if (!physical->owns_file) {
    return Status::fail(Code::invalid_argument, "the physical memory was not created with `exportable`");
  }
  if (physical->from_parent) {
    return Status::fail(Code::invalid_argument, "the physical memory was made before a fork and belongs to the parent");
  }
  if (const int error = os::duplicate(physical->fd, fd); error != 0) {
    return Status::driver_error(error, "fcntl(F_DUPFD_CLOEXEC)");
  }
  return {};
}

Status PhysicalMemory::import_fd(std::int32_t fd, PhysicalHandle* handle) noexcept {
  std::unique_ptr<Physical> fresh(new (std::nothrow) Physical);
  if (fresh == nullptr) return Status::fail(Code::out_of_memory, "no memory to note physical memory", sizeof(Physical));
  fresh->owns_file = true;
  fresh->imported = true;
  Physical* physical = nullptr;
  TM_TRY(add(std::move(fresh), &physical));
  Status status = adopt_file(*physical, fd);
  if (!status.ok()) {
    discard(physical);
    return status;
  }
  const std::lock_guard lock(mutex_);
  physical->state = Physical::State::live;
  *handle = physical->handle;
  return {};
}

Status PhysicalMemory::adopt_file(Physical& physical, std::int32_t fd) noexcept {
  os::FileFacts facts;
  int own = -1;
  if (fd < 0) return Status::fail(Code::invalid_argument, "the file descriptor is negative");
  if (const int error = os::duplicate(fd, &own); error != 0) {
    if (error == EBADF) return Status::fail(Code::invalid_argument, "the file descriptor is not open");
    return Status::driver_error(error, "fcntl(F_DUPFD_CLOEXEC)");
  }
  {
    const std::lock_guard lock(mutex_);
    physical.fd = own;
    physical.file_id = physical.handle;
  }
  // Looked at after duplicating: this is the file we keep, whatever happens to the caller's descriptor.
  if (const int error = os::describe_file(own, &facts); error != 0) return Status::driver_error(error, "fstat");
  if (!facts.memory_file) return Status::fail(Code::invalid_argument, "the file is not a memory file (memfd)");
  if (!facts.shrink_sealed) {
    return Status::fail(Code::invalid_argument,
                        "the memory file is not sealed against shrinking (F_SEAL_SHRINK): its owner could make every "
                        "access here fault");
  }
  if (facts.size == 0 || facts.size > kNoOverflowLimit || !is_aligned(facts.size, os::page_size())) {
    return Status::fail(Code::invalid_argument,
                        "the size of the memory file is not a positive multiple of the page "
                        "size");
  }
  physical.size = facts.size;
  if (facts.committed_bytes >= facts.size) return {};
  // A file with holes would be filled by touching, which can fault when memory is short.
  const std::uint64_t missing = facts.size - facts.committed_bytes;
  TM_TRY(gauge_.claim(missing));
  Status status = commit(physical, false);
  gauge_.give_back(missing);
  // One sealed against writing as well cannot be filled, and need not be: holes read as zero.
  if (status.code() == Code::driver_error && status.failure().driver_code == EPERM) return {};
  return status;
}

// --- Looking -----------------------------------------------------------------------------------------------------

Status PhysicalMemory::info(PhysicalHandle handle, PhysicalInfo* info) const noexcept {
  const std::lock_guard lock(mutex_);
  Physical* physical = nullptr;
  TM_TRY(find(handle, &physical));
  *info = PhysicalInfo{physical->size, 0, physical->owns_file, physical->huge, physical->imported};
  return {};
}

std::uint64_t PhysicalMemory::count() const noexcept {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

std::uint64_t PhysicalMemory::committed_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [handle, physical] : all_) bytes += physical->from_parent ? 0 : physical->size;
  return bytes;
}

std::uint64_t PhysicalMemory::leftover_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return leftover_windows_.size() + arena_.unpunched_count();
}

bool PhysicalMemory::is_valid() const noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, physical] : all_) {
    if (physical->handle != handle || handle >= next_handle_) return false;
    if (physical->state == Physical::State::live && physical->size == 0) return false;
    const bool has_slot = !physical->owns_file && !physical->from_parent;
    if (has_slot && physical->state == Physical::State::live && physical->slot.size < physical->size) return false;
  }
  return arena_.is_valid();
}

void PhysicalMemory::after_fork_in_child() noexcept {
  for (const auto& [handle, physical] : all_) {
    physical->from_parent = true;
    if (physical->owns_file && physical->fd >= 0) (void)os::close(physical->fd);
    physical->fd = -1;
  }
  leftover_windows_.clear();  // not inherited
  arena_.abandon();
  mutex_.unlock();
}

}  // namespace tensormem::host

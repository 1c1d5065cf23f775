#include "driver/host/plain_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/align.hpp"
#include "driver/host/aligned_range.hpp"
#include "driver/host/huge_pages.hpp"
#include "driver/host/os.hpp"
#include "driver/host/spare_files.hpp"

namespace tensormem::host {

namespace {

constexpr std::uint64_t kLargestAlignment = 1ULL << 40;
// Beyond these the heap would waste or touch more than pages of our own cost.
constexpr std::uint64_t kLargestHeapAlignment = 4 << 10;
constexpr std::uint64_t kLargestHeapZeroed = 256 << 10;
// From here on the first touch of small pages costs more than asking for large ones.
constexpr std::uint64_t kWorthHugePages = 4ULL << 20;

bool wants_huge_pages(std::uint64_t nbytes, const AllocationOptions& options) {
  return options.huge_pages && nbytes >= kHugePageBytes;
}

bool needs_own_pages(std::uint64_t nbytes, const AllocationOptions& options) {
  return options.kind == MemoryKind::pinned || options.numa_node >= 0 || options.alignment > kLargestHeapAlignment ||
         wants_huge_pages(nbytes, options) || (options.zeroed && nbytes > kLargestHeapZeroed);
}

// The system's list of nodes, such as "0-1,4"; a kernel without the file has node 0 alone.
bool node_exists(std::uint32_t node) {
  char text[512];
  if (os::read_text("/sys/devices/system/node/online", text, sizeof text) != 0) return node == 0;
  for (const char* at = text; *at >= '0' && *at <= '9';) {
    char* end = nullptr;
    const unsigned long first = std::strtoul(at, &end, 10);
    const unsigned long last = *end == '-' ? std::strtoul(end + 1, &end, 10) : first;
    if (first <= node && node <= last) return true;
    at = *end == ',' ? end + 1 : end;
  }
  return false;
}

Status check_options(std::uint64_t nbytes, const AllocationOptions& options) {
  if (nbytes == 0 || nbytes > kNoOverflowLimit) {
    return Status::fail(Code::invalid_size, nbytes == 0 ? "no bytes asked for" : "larger than any memory", nbytes);
  }
  if (!is_power_of_two(options.alignment) || options.alignment > kLargestAlignment) {
    return Status::fail(Code::invalid_alignment, "an alignment is a power of two of at most 2^40", options.alignment);
  }
  if (options.kind == MemoryKind::managed) {
    return Status::fail(Code::not_supported,
                        "managed memory moves between a host and a GPU, and the host driver has no GPU: use device or "
                        "pinned memory");
  }
  if (options.numa_node < -1) return Status::fail(Code::invalid_argument, "a NUMA node is -1 (any) or a node's number");
  return {};
}

}  // namespace

Status PlainMemory::out_of_memory(std::uint64_t nbytes, const char* what) const noexcept {
  MemoryInfo info;
  if (!gauge_.read(&info).ok()) info = MemoryInfo{};
  return Status::fail(Code::out_of_memory, what, nbytes, info.free_bytes, info.free_bytes);
}

Status PlainMemory::allocate(std::uint64_t nbytes, const AllocationOptions& options, std::uint64_t* address) noexcept {
  TM_TRY(check_options(nbytes, options));
  // An overcommitting kernel says yes to anything and kills somebody later.
  if (gauge_.is_too_large(nbytes)) [[unlikely]]
    return out_of_memory(nbytes, "more than all memory of this machine");
  Status made = allocate_now(nbytes, options, address);
  // Shared memory that is kept for later is the first to go.
  if (made.code() == Code::out_of_memory && yield_spare_files()) [[unlikely]]
    made = allocate_now(nbytes, options, address);
  return made;
}

Status PlainMemory::allocate_now(std::uint64_t nbytes, const AllocationOptions& options,
                                 std::uint64_t* address) noexcept {
  if (needs_own_pages(nbytes, options)) return allocate_pages(nbytes, options, address);
  if (os::heap_allocate(nbytes, options.alignment, options.zeroed, address) != 0) [[unlikely]]
    return out_of_memory(nbytes, "the heap cannot grow by this much");
  if (nbytes >= kWorthHugePages) wish_for_huge_pages(*address, nbytes);
  return {};
}

// A wish: an allocation without huge pages is an allocation.
void PlainMemory::wish_for_huge_pages(std::uint64_t address, std::uint64_t nbytes) const noexcept {
  if (!may_be_huge_.load(std::memory_order_relaxed)) return;
  const std::uint64_t begin = align_up(address, os::page_size());
  (void)os::advise(begin, align_down(address + nbytes, os::page_size()) - begin, os::Advice::huge_pages);
}

Status PlainMemory::allocate_pages(std::uint64_t nbytes, const AllocationOptions& options,
                                   std::uint64_t* address) noexcept {
  if (options.numa_node >= 0 && !node_exists(static_cast<std::uint32_t>(options.numa_node))) {
    return Status::fail(Code::invalid_argument, "this machine has no such NUMA node");
  }
  const std::uint64_t size = align_up(nbytes, os::page_size());
  std::uint64_t alignment = std::max(options.alignment, os::page_size());
  if (wants_huge_pages(nbytes, options)) alignment = std::max(alignment, kHugePageBytes);
  std::uint64_t start = 0;
  if (const int error = reserve_aligned(size, alignment, &start); error != 0) {
    if (error == ENOMEM) return out_of_memory(nbytes, "no room for pages of this size and alignment");
    return Status::driver_error(error, "mmap");
  }
  Status status = prepare_pages(start, size, nbytes, options);
  if (!status.ok()) {
    (void)os::unmap(start, size);
    return status;
  }
  *address = start;
  return {};
}

Status PlainMemory::prepare_pages(std::uint64_t address, std::uint64_t size, std::uint64_t nbytes,
                                  const AllocationOptions& options) noexcept {
  if (const int error = os::protect(address, size, os::Protection::read_write); error != 0) {
    if (error == ENOMEM) return out_of_memory(nbytes, "the kernel refuses to promise this much memory");
    return Status::driver_error(error, "mprotect");
  }
  if (options.numa_node >= 0) {
    const int error = os::bind_to_node(address, size, static_cast<std::uint32_t>(options.numa_node));
    // A kernel without NUMA has nothing to bind: node 0 is all there is.
    if (error != 0 && error != ENOSYS) return Status::driver_error(error, "mbind");
  }
  if (wants_huge_pages(nbytes, options) || nbytes >= kWorthHugePages) wish_for_huge_pages(address, size);
  const bool pinned = options.kind == MemoryKind::pinned;
  if (pinned) TM_TRY(locks_.pin(address, size));
  Status noted = note(address, PageBlock{nbytes, size, pinned});
  if (!noted.ok() && pinned) locks_.forget(address, size);
  return noted;
}

Status PlainMemory::note(std::uint64_t address, const PageBlock& block) noexcept try {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(address, block);
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory to note a block", sizeof(PageBlock));
}

Status PlainMemory::check_deallocate(std::uint64_t address, std::uint64_t nbytes,
                                     const AllocationOptions& options) const noexcept {
  TM_TRY(check_options(nbytes, options));
  if (address == 0) return Status::fail(Code::invalid_argument, "the address is null");
  if (!is_aligned(address, options.alignment)) {
    return Status::fail(Code::invalid_argument, "the address does not have the alignment of its allocation");
  }
  // Heap blocks seldom start on a page; only then is it worth a look whether this is a block of the other kind.
  if (needs_own_pages(nbytes, options) || !is_aligned(address, os::page_size())) return {};
  const std::lock_guard lock(mutex_);
  if (!blocks_.contains(address)) return {};
  return Status::fail(Code::invalid_argument, "the block was allocated with other options");
}

Status PlainMemory::deallocate(std::uint64_t address, std::uint64_t nbytes, const AllocationOptions& options) noexcept {
  TM_TRY(check_deallocate(address, nbytes, options));
  if (needs_own_pages(nbytes, options)) return deallocate_pages(address, nbytes);
  os::heap_free(address, options.alignment);
  return {};
}

Status PlainMemory::deallocate_pages(std::uint64_t address, std::uint64_t nbytes) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return Status::fail(Code::invalid_argument, "no block with these options starts here");
  if (found->second.nbytes != nbytes) return Status::fail(Code::invalid_argument, "the block has another size");
  // Out of the list while the pages go, so that nobody else gives them back too; a slow unmap blocks no one.
  auto node = blocks_.extract(found);
  lock.unlock();
  const PageBlock block = node.mapped();
  if (const int error = os::unmap(address, block.mapped_bytes); error != 0) {
    lock.lock();
    blocks_.insert(std::move(node));
    return Status::driver_error(error, "munmap");
  }
  if (block.pinned) locks_.forget(address, block.mapped_bytes);
  return {};
}

std::uint64_t PlainMemory::page_block_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace tensormem::host

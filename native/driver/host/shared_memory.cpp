#include "driver/host/shared_memory.hpp"

#include <cerrno>
#include <functional>
#include <string_view>
#include <utility>

#include "base/align.hpp"
#include "base/fork_guard.hpp"
#include "base/invariant.hpp"
#include "driver/host/aligned_range.hpp"
#include "driver/host/host_driver.hpp"
#include "driver/host/huge_pages.hpp"
#include "driver/host/os.hpp"
#include "driver/host/spare_files.hpp"

namespace tensormem {

namespace os = host::os;

namespace {

Status failed(int error, const char* call, std::uint64_t nbytes) {
  if (error == EFBIG || error == EOVERFLOW) return Status::fail(Code::invalid_size, call, nbytes);
  return Status::driver_error(error, call);
}

Status map_file(int fd, std::uint64_t size, os::Protection protection, std::uint64_t* address) {
  const int error = os::map_shared_file(fd, size, protection, address);
  if (error == ENOMEM) return Status::fail(Code::out_of_virtual_memory, "mmap", size);
  return error == 0 ? Status() : Status::driver_error(error, "mmap");
}

bool is_shortage(const Status& made) {
  if (made.ok()) return false;
  const std::int32_t error = made.failure().driver_code;
  return made.code() == Code::out_of_virtual_memory || error == ENOMEM || error == ENOSPC || error == EMFILE ||
         error == ENFILE;
}

void unmap(std::uint64_t address, std::uint64_t size) {
  // The kernel takes a whole mapping back; only a planned failure says otherwise.
  if (address != 0 && os::unmap(address, size) != 0) (void)os::unmap(address, size);
}

Status check_kind(const os::SharedFileFacts& facts, const AttachOptions& options) {
  if (facts.kind != os::FileKind::shared_memory && facts.kind != os::FileKind::huge_tlb) {
    return Status::fail(Code::invalid_argument, "the descriptor is not of shared memory");
  }
  if (!facts.readable) return Status::fail(Code::invalid_argument, "the descriptor may not read");
  if (!options.readonly && !facts.writable) {
    return Status::fail(Code::invalid_argument, "the descriptor may only read; attach it with readonly=True");
  }
  if (!options.readonly && facts.write_sealed) {
    return Status::fail(Code::invalid_argument,
                        "the memory is sealed against new writers; attach it with readonly=True");
  }
  return {};
}

Status check_size(const os::SharedFileFacts& facts, std::uint64_t wanted) {
  if (facts.size == 0) return Status::fail(Code::invalid_size, "the shared memory is empty", 0);
  if (wanted > facts.size) {
    return Status::fail(Code::invalid_offset, "the shared memory is smaller than what is asked of it", 0, wanted,
                        facts.size);
  }
  return {};
}

}  // namespace

Status SharedMemory::create(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept {
  TM_ASSERT(!is_open());
  if (nbytes == 0 || nbytes > kNoOverflowLimit - host::kHugePageBytes)
    return Status::fail(Code::invalid_size, "", nbytes);
  Status made = create_once(nbytes, options);
  // What is kept for later has pages and descriptors, and is the first to go.
  if (is_shortage(made) && host::yield_spare_files()) made = create_once(nbytes, options);
  return made;
}

Status SharedMemory::create_once(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept {
  forks_ = fork_count();
  Status made = options.huge_pages ? create_huge(nbytes, options) : create_plain(nbytes, options);
  if (made.ok() && options.readers_only) made = seal_against_writers();
  return finish(std::move(made));
}

Status SharedMemory::create_plain(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept {
  unseen_ = !options.readers_only && !options.fresh;
  name_hash_ = std::hash<std::string_view>{}(options.name);
  host::SpareFile spare;
  if (unseen_ && host::take_spare_file(align_up(nbytes, os::page_size()), name_hash_, &spare)) {
    fd_ = spare.fd;
    address_ = spare.address;
    mapped_bytes_ = spare.mapped_bytes;
    nbytes_ = spare.file_bytes;
    sealed_ = true;
    return nbytes == nbytes_ ? Status() : resize(nbytes);
  }
  TM_TRY(create_file(options.name, false, nbytes));
  TM_TRY(map_plain());
  // A wish: the kernel heeds it where shared memory may have huge pages, and a page is there when it is touched.
  if (mapped_bytes_ >= host::kHugePageBytes && host_driver().huge_pages_work())
    (void)os::advise(address_, mapped_bytes_, os::Advice::huge_pages);
  return {};
}

Status SharedMemory::finish(Status done) noexcept {
  if (!done.ok()) release();
  TM_EXPECT(is_valid());
  return done;
}

Status SharedMemory::create_file(const char* name, bool huge_tlb, std::uint64_t size) noexcept {
  int error = os::create_shared_file(name, huge_tlb, &fd_);
  // Old or hardened systems have no memfd_create; a file without a name does as well, but takes no seals.
  const bool missing = error == ENOSYS || error == EPERM || error == EACCES;
  if (missing && !huge_tlb) error = os::create_nameless_file(&fd_);
  if (error != 0) return failed(error, "memfd_create", size);
  sealed_ = !missing;
  return resize(size);
}

Status SharedMemory::resize(std::uint64_t size) noexcept {
  const int error = os::resize_file(fd_, size);
  if (error != 0) return failed(error == EINVAL ? EFBIG : error, "ftruncate", size);
  nbytes_ = size;
  return {};
}

Status SharedMemory::map_plain() noexcept {
  mapped_bytes_ = align_up(nbytes_, granularity_ == 0 ? os::page_size() : granularity_);
  return map_file(fd_, mapped_bytes_, readonly_ ? os::Protection::read : os::Protection::read_write, &address_);
}

Status SharedMemory::seal_against_writers() noexcept {
  readers_only_ = true;
  if (!sealed_) return Status::fail(Code::not_supported, "sealing shared memory: there is no memfd_create here");
  const int error = os::add_seals(fd_, os::Seals::size_and_writes);
  return error == 0 ? Status() : failed(error, "fcntl", nbytes_);
}

// Pages of the file are put together into huge ones; where the kernel cannot, ones that were set aside may be left.
Status SharedMemory::create_huge(std::uint64_t nbytes, const SharedMemoryOptions& options) noexcept {
  const std::uint64_t size = align_up(nbytes, host::kHugePageBytes);
  huge_ = true;
  Status made =
      host_driver().huge_pages_work() ? create_file(options.name, false, size) : Status::fail(Code::not_supported, "");
  if (made.ok()) made = map_huge(size);
  if (made.ok() || made.code() != Code::not_supported) return made;
  release();
  huge_ = true;
  granularity_ = host::kHugePageBytes;
  if (create_file(options.name, true, size).ok() && map_plain().ok()) return {};
  const char* reason = host_driver().huge_page_reason();
  return Status::fail(Code::not_supported, reason[0] != '\0' ? reason : "huge pages: none could be made now");
}

Status SharedMemory::map_huge(std::uint64_t size) noexcept {
  std::uint64_t window = 0;
  int error = host::reserve_aligned(size, host::kHugePageBytes, &window);
  if (error != 0) return failed(error, "mmap", size);
  address_ = window;
  mapped_bytes_ = size;
  error = os::map_file_over(window, size, fd_, 0, os::Protection::read_write);
  if (error != 0) return failed(error, "mmap", size);
  return host_driver().huge_pages().make(fd_, 0, size, window) ? Status() : Status::fail(Code::not_supported, "");
}

Status SharedMemory::attach(int fd, const AttachOptions& options) noexcept {
  TM_ASSERT(!is_open());
  os::SharedFileFacts facts;
  int error = os::describe_shared_file(fd, &facts);
  if (error != 0) return failed(error, "fstat", options.nbytes);
  TM_TRY(check_kind(facts, options));
  if (!facts.shrink_sealed && options.trusted) {
    // Whoever may seal it does, and then asks again how large it is now.
    facts.shrink_sealed = os::add_seals(fd, os::Seals::size) == 0;
    error = os::describe_shared_file(fd, &facts);
    if (error != 0) return failed(error, "fstat", options.nbytes);
  } else if (!facts.shrink_sealed) {
    return Status::fail(Code::invalid_argument,
                        "the shared memory is not sealed against shrinking, so whoever holds it could take it from "
                        "under a reader; seal it (F_SEAL_SHRINK) before it is sent, or attach it with trust=True");
  }
  TM_TRY(check_size(facts, options.nbytes));
  sealed_ = facts.shrink_sealed;
  ready_to_share_ = true;  // mode and seals are the sender's
  huge_ = facts.kind == os::FileKind::huge_tlb;
  granularity_ = facts.granularity;
  nbytes_ = options.nbytes == 0 ? facts.size : options.nbytes;
  return finish(take(fd, options.readonly, facts.writable));
}

Status SharedMemory::take(int fd, bool readonly, bool fd_writes) noexcept {
  readonly_ = readers_only_ = readonly;
  fd_reads_only_ = !fd_writes;
  // A descriptor that can only read makes a mapping that nothing can turn into a writable one. Of somebody else's file
  // there may be none; then the mapping alone is read-only.
  if (readonly && fd_writes) fd_reads_only_ = os::reopen_to_read(fd, &fd_) == 0;
  const int error = fd_ >= 0 ? 0 : os::duplicate(fd, &fd_);
  if (error != 0) return failed(error, "fcntl", nbytes_);
  return map_plain();
}

void SharedMemory::release() noexcept {
  unmap(reading_address_.exchange(0), mapped_bytes_);
  if (!keep_for_the_next()) {
    unmap(address_, mapped_bytes_);
    if (fd_ >= 0) (void)os::close(fd_);
  }
  fd_ = -1;
  address_ = nbytes_ = granularity_ = mapped_bytes_ = 0;
  readonly_ = readers_only_ = fd_reads_only_ = sealed_ = huge_ = false;
  ready_to_share_ = unseen_ = false;
}

bool SharedMemory::keep_for_the_next() noexcept {
  if (!unseen_ || !sealed_ || fd_ < 0 || address_ == 0) return false;
  return host::keep_spare_file({.fd = fd_,
                                .address = address_,
                                .mapped_bytes = mapped_bytes_,
                                .file_bytes = nbytes_,
                                .name_hash = name_hash_,
                                .forks = forks_});
}

Status SharedMemory::reading_address(std::uint64_t* address) noexcept {
  *address = readonly_ ? address_ : reading_address_.load(std::memory_order_acquire);
  if (*address != 0) return {};
  std::uint64_t mine = 0;
  TM_TRY(map_file(fd_, mapped_bytes_, os::Protection::read, &mine));
  // Another thread may have been faster; its mapping is as good.
  if (reading_address_.compare_exchange_strong(*address, mine)) {
    *address = mine;
  } else {
    unmap(mine, mapped_bytes_);
  }
  return {};
}

Status SharedMemory::duplicate(bool readonly, bool trusted, int* fd) noexcept {
  if (!sealed_ && !trusted) {
    return Status::fail(Code::not_supported,
                        "sharing memory that cannot be sealed against shrinking; share it with trust=True if every "
                        "process that gets it is your own");
  }
  if (!ready_to_share_) TM_TRY(prepare_to_share());
  const bool reading = (readonly || readers_only_) && !fd_reads_only_;
  const int error = reading ? os::reopen_to_read(fd_, fd) : os::duplicate(fd_, fd);
  return error == 0 ? Status() : failed(error, reading ? "open" : "fcntl", nbytes_);
}

// Until a first descriptor goes out nobody else can reach the file, and most memory never gets so far.
Status SharedMemory::prepare_to_share() noexcept {
  unseen_ = false;
  int error = os::restrict_to_owner(fd_);
  if (error != 0) return failed(error, "fchmod", nbytes_);
  // Refused where another thread was faster: then it is done.
  error = sealed_ ? os::add_seals(fd_, os::Seals::size_for_good) : 0;
  if (error != 0 && error != EPERM) return failed(error, "fcntl", nbytes_);
  ready_to_share_ = true;
  return {};
}

Status SharedMemory::identify(std::uint64_t* device, std::uint64_t* inode) noexcept {
  unseen_ = false;
  os::SharedFileFacts facts;
  const int error = os::describe_shared_file(fd_, &facts);
  if (error != 0) return failed(error, "fstat", nbytes_);
  *device = facts.device;
  *inode = facts.inode;
  return {};
}

bool SharedMemory::is_valid() const noexcept {
  if (!is_open()) return address_ == 0 && reading_address_.load() == 0 && nbytes_ == 0;
  return address_ != 0 && nbytes_ > 0 && nbytes_ <= mapped_bytes_ && is_aligned(mapped_bytes_, os::page_size());
}

int try_shared_memory() noexcept {
  SharedMemory memory;
  const Status made = memory.create(1, {.name = "tensormem-probe", .fresh = true});
  if (made.ok()) return 0;
  return made.failure().driver_code != 0 ? made.failure().driver_code : ENOMEM;
}

}  // namespace tensormem

#include "driver/host/memfd_arena.hpp"

#include <cerrno>
#include <iterator>
#include <new>

#include "base/align.hpp"
#include "base/invariant.hpp"
#include "driver/host/huge_pages.hpp"
#include "driver/host/os.hpp"

namespace tensormem::host {

namespace {

// As large as user addresses can be, so that any of them can be a wish.
constexpr std::uint64_t kWishBytes = 1ULL << 47;
constexpr std::uint64_t kOtherBytes = 1ULL << 46;

}  // namespace

Status MemfdArena::open() noexcept {
  wishes_.clear();
  unpunched_.clear();
  // Small pages of neighbours never share a huge one, so that each can be made and given back alone.
  TM_TRY(others_.open(kOtherBytes, kHugePageBytes));
  int fd = -1;
  if (const int error = os::create_memfd("tensormem", &fd); error != 0) {
    if (error == ENOSYS) return Status::fail(Code::not_supported, "this kernel has no memfd_create");
    return Status::driver_error(error, "memfd_create");
  }
  if (const int error = os::resize_file(fd, kWishBytes + kOtherBytes); error != 0) {
    (void)os::close(fd);
    return Status::driver_error(error, "ftruncate");
  }
  fd_ = fd;
  return {};
}

bool MemfdArena::take_wish(std::uint64_t size, std::uint64_t wish, Slot* slot) {
  if (!is_aligned(wish, os::page_size()) || !range_within(wish, size, kWishBytes)) return false;
  const auto after = wishes_.lower_bound(wish);
  if (after != wishes_.end() && after->first < wish + size) return false;
  if (after != wishes_.begin() && std::prev(after)->first + std::prev(after)->second > wish) return false;
  wishes_.emplace_hint(after, wish, size);
  *slot = Slot{wish, size, true, kNoNode};
  return true;
}

Status MemfdArena::take(std::uint64_t size, std::uint64_t wish, Slot* slot) noexcept try {
  if (fd_ < 0) TM_TRY(open());
  if (wish != kNoWish && take_wish(size, wish, slot)) return {};
  Allocation allocation;
  TM_TRY(others_.allocate(size, kHugePageBytes, &allocation));
  *slot = Slot{kWishBytes + allocation.offset, size, false, allocation.node};
  return {};
} catch (const std::bad_alloc&) {
  return Status::fail(Code::out_of_memory, "no memory for the books of physical memory", sizeof(Slot));
}

int MemfdArena::punch(int fd, const Slot& slot) noexcept { return os::punch_hole(fd, slot.offset, slot.size); }

void MemfdArena::give_back(const Slot& slot) noexcept {
  if (slot.wished) {
    wishes_.erase(slot.offset);
  } else {
    const bool was_ours = others_.deallocate(slot.node).ok();
    TM_ASSERT(was_ours);
  }
}

void MemfdArena::keep_unpunched(const Slot& slot) noexcept try {
  unpunched_.push_back(slot);
} catch (const std::bad_alloc&) {
  // Never handed out again: its old bytes must not be seen by the next owner.
}

void MemfdArena::retry_unpunched() noexcept {
  std::erase_if(unpunched_, [this](const Slot& slot) {
    if (punch(fd_, slot) != 0) return false;
    give_back(slot);
    return true;
  });
}

void MemfdArena::abandon() noexcept {
  if (fd_ >= 0) (void)os::close(fd_);
  fd_ = -1;
  unpunched_.clear();
}

bool MemfdArena::is_valid() const noexcept {
  std::uint64_t before = 0;
  for (const auto& [offset, size] : wishes_) {
    if (offset < before || size == 0 || offset + size > kWishBytes) return false;
    before = offset + size;
  }
  return fd_ < 0 || others_.is_valid();
}

}  // namespace tensormem::host

// Owns: the one sparse memory file that holds all ordinary physical memory, and which of its bytes are taken. A file
// per allocation would run out of descriptors, and its neighbours could never join into one memory area.
//
// The lower half of the file is for wishes: a caller who asks for a place gets it when it is free. Wishing for the
// virtual address of the future mapping keeps neighbours neighbours, and no two pools ever want the same place. The
// upper half is handed out by an offset allocator. Offsets cost nothing; only committed pages do.
// Must not know: mappings. Not thread-safe but for `punch`: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "alloc/offset_allocator.hpp"
#include "base/status.hpp"

namespace tensormem::host {

class MemfdArena {
 public:
  static constexpr std::uint64_t kNoWish = ~0ULL;
  static constexpr std::uint64_t kFileId = 0;

  struct Slot {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    bool wished = false;
    std::uint32_t node = kNoNode;  // unless `wished`
  };

  // A slot that reads as zero once committed. Opens the file the first time.
  Status take(std::uint64_t size, std::uint64_t wish, Slot* slot) noexcept;
  // The slot's pages go back to the system. Needs no lock. 0 or an errno.
  static int punch(int fd, const Slot& slot) noexcept;
  // After `punch`: the offsets may be handed out again, or (punching failed) not before it has been done.
  void give_back(const Slot& slot) noexcept;
  void keep_unpunched(const Slot& slot) noexcept;
  void retry_unpunched() noexcept;

  int fd() const noexcept { return fd_; }
  std::uint64_t unpunched_count() const noexcept { return unpunched_.size(); }
  bool is_valid() const noexcept;
  // In the child of a fork: let go of the parent's file; the next `take` opens another.
  void abandon() noexcept;

 private:
  Status open() noexcept;
  bool take_wish(std::uint64_t size, std::uint64_t wish, Slot* slot);

  int fd_ = -1;
  std::map<std::uint64_t, std::uint64_t> wishes_;  // taken: offset -> size
  OffsetAllocator others_;
  std::vector<Slot> unpunched_;
};

}  // namespace tensormem::host

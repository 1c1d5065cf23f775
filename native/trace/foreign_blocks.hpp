// Owns: blocks of memory that others hand out and we only watch: malloc's, mmap's, NumPy's. Each is reported when it is
// seen and when it ends, with the same number, so that whoever frees it need not know its size, and what nobody saw is
// never reported as freed. Must not know: how blocks come to be seen.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/fork_guard.hpp"

namespace tensormem {

struct ForeignBlock {
  std::uint64_t nbytes = 0;
  std::uint64_t generation = 0;
  std::uint32_t resource = 0;
  std::uint32_t tag = 0;
  std::uint32_t stack = 0;
  std::uint32_t session = 0;  // the recording that knows it
  std::uint8_t depth = 0;
};

// Who asked: the number of a reporter, and a tag.
struct ForeignOwner {
  std::uint32_t resource = 0;
  std::uint32_t tag = 0;
};

class ForeignBlocks {
 public:
  static ForeignBlocks& instance();

  // A block of `nbytes` at `address` is there: reported and remembered. Without memory to remember it, neither.
  void begin(ForeignOwner owner, std::uint64_t address, std::uint64_t nbytes) noexcept;
  // The block at `address` ends, if it was seen. Call it before the address can be given to another.
  void end(std::uint64_t address) noexcept;

  // What `forget` took out, and `remember` puts back: for a call that may fail, such as realloc. Nothing is reported.
  bool forget(std::uint64_t address, ForeignBlock* block) noexcept;
  void remember(std::uint64_t address, const ForeignBlock& block) noexcept;
  // Reports the end of a block that was taken out.
  static void report_end(std::uint64_t address, const ForeignBlock& block) noexcept;

  // Ranges of pages, of which parts may end.
  void begin_range(ForeignOwner owner, std::uint64_t address, std::uint64_t nbytes) noexcept;
  void end_range(std::uint64_t address, std::uint64_t nbytes) noexcept;
  // The owner of the range that begins at `address`; resource 0 when none was seen.
  ForeignOwner owner_of_range(std::uint64_t address) noexcept;

 private:
  static constexpr std::size_t kShards = 16;
  struct Shard {
    std::mutex mutex;
    ForkGuard fork_guard{mutex};
    std::unordered_map<std::uint64_t, ForeignBlock> blocks;
  };

  ForeignBlocks();
  static void after_fork_in_child() noexcept;
  Shard& shard_of(std::uint64_t address) noexcept;
  static ForeignBlock describe(ForeignOwner owner, std::uint64_t nbytes) noexcept;
  static void report_begin(std::uint64_t address, const ForeignBlock& block) noexcept;

  Shard shards_[kShards];
  std::mutex ranges_mutex_;
  ForkGuard ranges_guard_{ranges_mutex_};
  std::map<std::uint64_t, ForeignBlock> ranges_;  // by address; they never overlap
};

}  // namespace tensormem

// Owns: the count of memory areas (VMAs) of this process against vm.max_map_count. Ours are counted as they come and
// go; everybody else's are read from the kernel at the start, again when the limit seems near, and never otherwise.
// They may have gone meanwhile: where they are many, nothing is refused by an old count.
// Refusing early leaves the process able to map libraries and stacks, and to unmap what it has.
// Must not know: what is mapped. Not thread-safe: the owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/status.hpp"

namespace tensormem::host {

class VmaBudget {
 public:
  // Room for `extra` more areas, or `too_many_mappings(current, limit)`. What is spared for the rest of the process is
  // there for taking things down, too: `admit_last` counts up to the kernel's own limit.
  Status admit(std::uint64_t extra) noexcept { return admit_below(extra, std::min(kSpare, limit() / 8)); }
  Status admit_last(std::uint64_t extra) noexcept { return admit_below(extra, 0); }
  // What a change of ours did to the number of areas.
  void changed(std::int64_t difference) noexcept { ours_ += difference; }
  // True when the kernel's own count says that it refused for lack of areas.
  bool is_exhausted() noexcept;
  Status refusal() const noexcept;

  std::uint64_t current() noexcept;
  std::uint64_t limit() noexcept;
  std::int64_t ours() const noexcept { return ours_; }

 private:
  // Left to the rest of the process: thread stacks and heaps take two or three each.
  static constexpr std::uint64_t kSpare = 512;
  // Reading a full list takes tens of milliseconds. Where the others are few, not again before this many changes of
  // ours; where they are more than this part of the limit, before every refusal.
  static constexpr std::int64_t kChangesBetweenReads = 128;
  static constexpr std::uint64_t kManyOthers = 8;

  bool may_be_outdated() const noexcept;
  Status admit_below(std::uint64_t extra, std::uint64_t spare) noexcept;
  void read_limit() noexcept;
  void read_others() noexcept;
  std::uint64_t counted() const noexcept;

  std::uint64_t limit_ = 0;  // 0: not read yet
  std::int64_t others_ = 0;
  std::int64_t ours_ = 0;
  std::int64_t ours_at_read_ = 0;
};

}  // namespace tensormem::host

// Owns: the books of one address range: which offsets are mapped, to what, and with which access. Pure: it calls no
// driver. A mapping is split where a request begins or ends inside it; both parts keep its serial number.
// Must not know: how memory is mapped. Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/status.hpp"
#include "vmm/access_set.hpp"
#include "vmm/physical_allocation.hpp"

namespace tensormem {

struct Mapping {
  std::uint64_t size = 0;
  PhysicalPtr physical;  // one of its mappings is ours
  std::uint64_t physical_offset = 0;
  std::uint64_t serial = 0;  // of the call that made it; never used again
  AccessSet access;
};

class MappingTable {
 public:
  using Mappings = std::map<std::uint64_t, Mapping>;

  const Mappings& all() const noexcept { return mappings_; }
  bool empty() const noexcept { return mappings_.empty(); }

  // `already_mapped` with the first mapping in the way; `not_mapped` with the first hole.
  Status check_free(std::uint64_t offset, std::uint64_t size) const noexcept;
  Status check_mapped(std::uint64_t offset, std::uint64_t size) const noexcept;
  // Mapped throughout by the call of that serial number; it may have mapped more.
  Status check_serial(std::uint64_t offset, std::uint64_t size, std::uint64_t serial) const noexcept;
  // No mapping reaches over either end of the range.
  bool is_whole(std::uint64_t offset, std::uint64_t size) const noexcept;

  // May throw bad_alloc. The range must be free.
  void add(std::uint64_t offset, Mapping mapping);
  // Make a mapping begin at `offset` if one covers it. May throw bad_alloc.
  void split_at(std::uint64_t offset);
  // Undo splits in and around the range where both sides are again parts of one mapping with one access.
  void rejoin(std::uint64_t offset, std::uint64_t size) noexcept;
  // The first mapping of that call from `*offset` on, where it begins or goes on, and how far it reaches.
  bool next_of(std::uint64_t serial, std::uint64_t* offset, std::uint64_t* size) const noexcept;
  void forget_access(std::uint64_t offset) noexcept { mappings_.find(offset)->second.access = AccessSet(); }
  // Takes the mappings that begin in the range out of the table; they still hold their physical memory.
  Mappings remove(std::uint64_t offset, std::uint64_t size) noexcept;

  template <typename Visitor>
  void for_each(std::uint64_t offset, std::uint64_t size, Visitor&& visit) {
    for (auto at = mappings_.lower_bound(offset); at != mappings_.end() && at->first < offset + size; ++at) {
      visit(at->first, at->second);
    }
  }
  bool is_valid() const noexcept;

 private:
  static bool are_one(const Mappings::value_type& left, const Mappings::value_type& right) noexcept;
  bool is_inside_one(std::uint64_t offset) const noexcept;

  Mappings mappings_;
};

}  // namespace tensormem

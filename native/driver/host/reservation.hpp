// Owns: the books of one reserved address range: which parts are mapped, to what, and with which access. Pure: it makes
// no system call. Parts are kept as long as they can be (neighbours of one physical memory with one access are one
// piece) and are split where a request begins or ends; neither changes what is mapped.
// Must not know: how memory is mapped, or how physical memory is made. Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.hpp"
#include "driver/host/physical_memory.hpp"
#include "driver/types.hpp"

namespace tensormem::host {

struct Piece {
  std::uint64_t size = 0;
  Physical* physical = nullptr;  // holds one of its mappings
  std::uint64_t physical_offset = 0;
  AccessFlags access = AccessFlags::none;

  std::uint64_t file_offset() const noexcept { return physical->file_offset + physical_offset; }
};

class Reservation {
 public:
  using Pieces = std::map<std::uint64_t, Piece>;

  Reservation(std::uint64_t address, std::uint64_t size) noexcept : address_(address), size_(size) {}

  std::uint64_t address() const noexcept { return address_; }
  std::uint64_t size() const noexcept { return size_; }
  const Pieces& pieces() const noexcept { return pieces_; }
  bool contains(std::uint64_t address, std::uint64_t size) const noexcept;

  // `already_mapped` with the first piece in the way; `not_mapped` with the first hole. Offsets count from our address.
  Status check_free(std::uint64_t address, std::uint64_t size) const noexcept;
  Status check_mapped(std::uint64_t address, std::uint64_t size) const noexcept;

  // One behind the other; each takes over the caller's mapping of its physical memory. The range must be free. May
  // throw bad_alloc, and has then added some of them.
  void add(std::uint64_t address, const std::vector<Piece>& pieces);
  // Make a piece begin at `address` if one covers it. May throw bad_alloc; changes nothing that can be seen.
  void split_at(std::uint64_t address);
  // The following want the range split at both ends and mapped throughout.
  void set_access(std::uint64_t address, std::uint64_t size, AccessFlags access) noexcept;
  Pieces remove(std::uint64_t address, std::uint64_t size) noexcept;
  template <typename Visitor>
  void for_each(std::uint64_t address, std::uint64_t size, Visitor&& visit) const {
    for (auto at = pieces_.lower_bound(address); at != pieces_.end() && at->first < address + size; ++at) {
      visit(at->first, at->second);
    }
  }
  // Undo splits in and around the range.
  void merge(std::uint64_t address, std::uint64_t size) noexcept;

  // Where the kernel's memory areas meet, in [address, address + size]; their number is one more than all of them.
  std::uint64_t boundaries(std::uint64_t address, std::uint64_t size) const noexcept;
  // The most areas that a change of exactly this range can add.
  std::uint64_t possible_growth(std::uint64_t address, std::uint64_t size) const noexcept;
  bool is_valid() const noexcept;

 private:
  static bool are_one_piece(const Pieces::value_type& left, const Pieces::value_type& right) noexcept;
  bool is_edge(std::uint64_t address) const noexcept;
  static bool are_one_area(const Pieces::value_type& left, const Pieces::value_type& right) noexcept;

  std::uint64_t address_;
  std::uint64_t size_;
  Pieces pieces_;
};

}  // namespace tensormem::host

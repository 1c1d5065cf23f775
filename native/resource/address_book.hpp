// Owns: address -> the block there and the resource that made it, for callers who free by bare pointer (the hooks of
// other libraries). An entry keeps its resource alive. Cut into parts with a lock each, so that threads seldom meet.
// Must not know: who the callers are. Whoever frees takes the entry out first: once a resource has a block back, the
// address may be handed out again at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "alloc/block.hpp"
#include "base/fork_guard.hpp"
#include "resource/resource.hpp"

namespace tensormem {

struct BookEntry {
  Block block;
  ResourcePtr resource;
};

class AddressBook {
 public:
  // A block of the resource, from now on in the book. On failure nothing has changed.
  Status allocate(const ResourcePtr& resource, const AllocRequest& request, void** pointer) noexcept;
  // The entry, which stays in the book.
  std::optional<BookEntry> find(std::uint64_t address) const noexcept;
  // `stream` uses the block too: its end will come after all work queued there when it is freed.
  Status record_use(std::uint64_t address, StreamId stream) noexcept;
  // The block goes back to its resource, on `stream`. A resource that refuses leaves everything as it was.
  Status deallocate(std::uint64_t address, StreamId stream) noexcept;

  std::size_t size() const noexcept;
  bool is_valid() const noexcept;

 private:
  struct Record : BookEntry {
    std::vector<StreamId> users;  // streams that use it, beside the one it is freed on
  };
  using Entries = std::unordered_map<std::uint64_t, Record>;
  struct alignas(64) Part {
    mutable std::mutex mutex;  // never held while a resource is called
    ForkGuard fork_guard{mutex};
    Entries entries;
  };
  static constexpr std::size_t kParts = 8;

  static std::size_t part_index(std::uint64_t address);
  Part& part_of(std::uint64_t address) { return parts_[part_index(address)]; }
  const Part& part_of(std::uint64_t address) const { return parts_[part_index(address)]; }
  Status insert(const Block& block, const ResourcePtr& resource) noexcept;
  Entries::node_type take(std::uint64_t address) noexcept;
  void put_back(Entries::node_type entry) noexcept;
  static Status end(const Record& record, StreamId stream) noexcept;

  std::array<Part, kParts> parts_;
};

}  // namespace tensormem

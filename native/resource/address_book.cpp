#include "resource/address_book.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/blocking.hpp"
#include "base/invariant.hpp"

namespace tensormem {

namespace {

// Spreads addresses, whose low bits are mostly zero, over the high bits (Fibonacci hashing).
constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15ULL;

Status nothing_at(std::uint64_t address) {
  return Status::fail(Code::foreign_block, "no block was handed out here by this hook, or it was freed before", 0,
                      address);
}

// The block's end comes after what `stream` was given so far.
Status order_after(const BookEntry& entry, StreamId stream) {
  Resource& resource = *entry.resource;
  // A read: a write would make the resource forget the uses of other streams, for which this one did not wait.
  if (resource.supports_block_use_tracking()) return resource.finish_block_use(entry.block, stream, Access::read);
  const BlockingRegion region;
  return resource.driver().stream_synchronize(stream);
}

}  // namespace

std::size_t AddressBook::part_index(std::uint64_t address) {
  return static_cast<std::size_t>((address * kSpread) >> (64 - std::countr_zero(kParts)));
}

Status AddressBook::allocate(const ResourcePtr& resource, const AllocRequest& request, void** pointer) noexcept {
  Block block{};
  TM_TRY(resource->allocate(request, &block));
  if (Status inserted = insert(block, resource); !inserted.ok()) {
    BlockState end{};
    // An address that is in the book belongs to its first owner: giving it back would free their memory.
    if (inserted.code() != Code::foreign_block) TM_TRY(resource->deallocate(block, request.stream, &end));
    return inserted;
  }
  *pointer = reinterpret_cast<void*>(block.address);
  return {};
}

std::optional<BookEntry> AddressBook::find(std::uint64_t address) const noexcept {
  const Part& part = part_of(address);
  const std::lock_guard lock(part.mutex);
  const auto found = part.entries.find(address);
  if (found == part.entries.end()) return std::nullopt;
  return found->second;
}

Status AddressBook::record_use(std::uint64_t address, StreamId stream) noexcept {
  Part& part = part_of(address);
  const std::lock_guard lock(part.mutex);
  const auto found = part.entries.find(address);
  if (found == part.entries.end()) return nothing_at(address);
  std::vector<StreamId>& users = found->second.users;
  if (std::find(users.begin(), users.end(), stream) != users.end()) return {};
  try {
    users.push_back(stream);
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory to remember that a stream uses the block", sizeof(StreamId));
  }
  return {};
}

Status AddressBook::deallocate(std::uint64_t address, StreamId stream) noexcept {
  Entries::node_type entry = take(address);
  if (entry.empty()) return nothing_at(address);
  Status ended = end(entry.mapped(), stream);
  // A block that is still live still has an owner, who may try again.
  if (!ended.ok() && entry.mapped().resource->state_of(entry.mapped().block) == BlockState::live)
    put_back(std::move(entry));
  return ended;
}

std::size_t AddressBook::size() const noexcept {
  std::size_t total = 0;
  for (const Part& part : parts_) {
    const std::lock_guard lock(part.mutex);
    total += part.entries.size();
  }
  return total;
}

bool AddressBook::is_valid() const noexcept {
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::lock_guard lock(parts_[i].mutex);
    for (const auto& [address, entry] : parts_[i].entries)
      if (address == 0 || part_index(address) != i || entry.block.address != address || entry.resource == nullptr)
        return false;
  }
  return true;
}

Status AddressBook::end(const Record& record, StreamId stream) noexcept {
  for (const StreamId user : record.users)
    if (user != stream) TM_TRY(order_after(record, user));
  BlockState end{};
  return record.resource->deallocate(record.block, stream, &end);
}

Status AddressBook::insert(const Block& block, const ResourcePtr& resource) noexcept {
  TM_ASSERT(block.address != 0 && resource != nullptr);
  Part& part = part_of(block.address);
  const std::lock_guard lock(part.mutex);
  try {
    const auto [place, is_new] = part.entries.try_emplace(block.address, Record{{block, resource}, {}});
    if (!is_new)
      return Status::fail(Code::foreign_block, "the resource handed out an address that is still in use",
                          place->second.block.generation, block.address);
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, "no memory to remember the block by its address", block.nbytes);
  }
  return {};
}

AddressBook::Entries::node_type AddressBook::take(std::uint64_t address) noexcept {
  Part& part = part_of(address);
  const std::lock_guard lock(part.mutex);
  return part.entries.extract(address);
}

void AddressBook::put_back(Entries::node_type entry) noexcept {
  Part& part = part_of(entry.key());
  const std::lock_guard lock(part.mutex);
  try {
    part.entries.insert(std::move(entry));
  } catch (const std::bad_alloc&) {
    // The table could not grow: the block stays live and counted by its resource, but nobody finds it by address.
  }
}

}  // namespace tensormem

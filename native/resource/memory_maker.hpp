// Owns: who makes the bytes behind a block of a kind that needs more than a size to be made: a file to share, a buffer
// of a device, memory that somebody else made and that is adopted. The maker travels in the request through whatever
// stands above the leaf; what it made stays with the leaf until the block is free. Must not know: which kinds there
// are.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.hpp"

namespace tensormem {

struct AllocRequest;

// The memory behind one block. Released once, by the leaf that handed the block out, without a lock of the leaf's.
class KindMemory {
 public:
  virtual ~KindMemory() = default;
  // Where the bytes are; 0 for memory that is reachable only while it is mapped.
  virtual std::uint64_t address() const noexcept = 0;
  virtual Status release() noexcept = 0;
};

class MemoryMaker {
 public:
  // On failure nothing was made. May be called again: after a shortage, or when an adaptor tries once more.
  virtual Status make(const AllocRequest& request, std::unique_ptr<KindMemory>* made) noexcept = 0;
  // Whether what it makes is all zeros.
  virtual bool makes_zeros() const noexcept { return false; }

 protected:
  ~MemoryMaker() = default;
};

// The maker of the request that a resource written in another language is serving on this thread: what such a resource
// forwards is a size and a tag alone.
MemoryMaker* maker_in_force() noexcept;

class MakerScope {
 public:
  explicit MakerScope(MemoryMaker* maker) noexcept;
  ~MakerScope();
  MakerScope(const MakerScope&) = delete;
  MakerScope& operator=(const MakerScope&) = delete;

 private:
  MemoryMaker* const before_;
};

}  // namespace tensormem

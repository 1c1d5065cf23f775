// Owns: an array of zeros whose memory the system gives only where it is written: for tables with a place for each of
// millions of pages, of which a few are in use.
// Must not know: what is in it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace tensormem {

template <typename T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Throws bad_alloc.
  explicit LazyArray(std::uint64_t size) : size_(size), items_(static_cast<T*>(std::calloc(size, sizeof(T)))) {
    if (items_ == nullptr && size != 0) throw std::bad_alloc();
  }

  std::uint64_t size() const noexcept { return size_; }
  T& operator[](std::uint64_t index) noexcept { return items_.get()[index]; }
  const T& operator[](std::uint64_t index) const noexcept { return items_.get()[index]; }

 private:
  struct Free {
    void operator()(void* pointer) const noexcept { std::free(pointer); }
  };
  std::uint64_t size_;
  std::unique_ptr<T, Free> items_;
};

}  // namespace tensormem

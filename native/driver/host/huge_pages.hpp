// Owns: whether this kernel gives real 2 MiB pages to shared memory, found out once by trying, and the making of them.
// It works although shared memory is usually barred from huge pages by default: a collapse on request is not.
// Must not know: who the pages are for.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensormem::host {

inline constexpr std::uint64_t kHugePageBytes = 2ULL << 20;

class HugePages {
 public:
  // Tries it the first time it is asked.
  bool work() noexcept;
  // Never ask for them, whatever the kernel can. Pages that are huge already stay so.
  void turn_off() noexcept;
  // Static text: why they do not work, or why the last page that should have been huge is not; "" while all is well.
  const char* reason() noexcept;

  // Make the whole 2 MiB pages of [offset, offset + size) of a memory file really huge. Both numbers are multiples of
  // the page size. `window` is a mapping of exactly these bytes with the same position modulo 2 MiB, which may be
  // untouchable. True when every byte that could be in a huge page is; otherwise some or all are still missing.
  bool make(int fd, std::uint64_t offset, std::uint64_t size, std::uint64_t window) noexcept;
  // Keeps the reason why there was not even a window.
  void failed(int error) noexcept;

 private:
  enum class Answer : int { unknown, yes, no };
  Answer try_once() noexcept;
  int try_in_file(int fd) noexcept;

  std::atomic<Answer> answer_{Answer::unknown};
  std::atomic<const char*> reason_{""};
};

}  // namespace tensormem::host

// Owns: an event that several processes see: two numbers in memory that they share, found through the process that made
// them. A record takes the next number; the work of the stream tells when it has been passed.
// Must not know: streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/results.hpp"

namespace simgpu {

// What goes to another process in place of a handle: 64 bytes for events and for memory.
struct ProcessNote {
  std::uint64_t mark = 0;
  std::int64_t process = 0;
  std::int64_t fd = -1;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t reserved[3] = {};
};
static_assert(sizeof(ProcessNote) == 64);

inline constexpr std::uint64_t kEventMark = 0x746e65766569736dULL;
inline constexpr std::uint64_t kMemoryMark = 0x6d656d697073736dULL;

// A descriptor of the file that a note is about; kInvalidContext for a note of this very process, as the driver says.
Result open_note(const ProcessNote& note, std::uint64_t mark, int* fd);

class SharedEvent {
 public:
  struct Page {
    std::atomic<std::uint64_t> recorded;
    std::atomic<std::uint64_t> passed;

    void pass(std::uint64_t number);
    // Bounded: a process that died never passes.
    void wait_for(std::uint64_t number) const;
    bool has_passed() const { return passed.load() >= recorded.load(); }
  };

  static Result create(std::shared_ptr<SharedEvent>* event);
  static Result open(const ProcessNote& note, std::shared_ptr<SharedEvent>* event);
  SharedEvent(int fd, Page* page) : fd_(fd), page_(page) {}
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;
  ~SharedEvent();

  Page& page() const { return *page_; }
  ProcessNote note() const;

 private:
  static Result map(int fd, std::shared_ptr<SharedEvent>* event);

  int fd_;
  Page* page_;
};

}  // namespace simgpu

// Owns: NumPy's default data allocator, watched: its own functions still do the work, for all threads and tasks, and
// arrays from a size on are reported to the recorder. Arrays that somebody gives another allocator do not pass here.
// Must not know: files.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "_core/numpy_handler.hpp"
#include "base/interned.hpp"
#include "trace/foreign_blocks.hpp"
#include "trace/record.hpp"
#include "trace/reporters.hpp"
#include "trace/unseen.hpp"

namespace tensormem {

class NumpyWatch {
 public:
  // Once per process, with the GIL; calling it again is harmless. `table` has been checked.
  static void install(const NumpyTable& table, std::size_t least) {
    DataMemAllocator& allocator = table.standard->allocator;
    if (allocator.malloc == &allocate) return;
    least_ = least;
    owner_ = {.resource = add_foreign_reporter("numpy arrays", "main"), .tag = intern_tag("numpy")};
    next_ = allocator;
    allocator.malloc = &allocate;
    allocator.calloc = &allocate_zeroed;
    allocator.realloc = &reallocate;
    allocator.free = &deallocate;
  }

 private:
  static bool is_seen(std::size_t nbytes) noexcept { return nbytes >= least_ && trace_is_on(); }
  static std::uint64_t number(const void* block) noexcept { return reinterpret_cast<std::uintptr_t>(block); }

  static void* allocate(void* context, std::size_t nbytes) {
    if (!is_seen(nbytes)) return next_.malloc(context, nbytes);
    const TraceUnseen unseen;
    return begin(next_.malloc(context, nbytes), nbytes);
  }
  static void* allocate_zeroed(void* context, std::size_t count, std::size_t each) {
    if (!is_seen(count * each)) return next_.calloc(context, count, each);
    const TraceUnseen unseen;
    return begin(next_.calloc(context, count, each), count * each);
  }
  static void* reallocate(void* context, void* block, std::size_t nbytes) {
    const TraceUnseen unseen;
    ForeignBlock known;
    const bool was_seen = ForeignBlocks::instance().forget(number(block), &known);
    void* const resized = next_.realloc(context, block, nbytes);
    if (resized == nullptr) {
      if (was_seen) ForeignBlocks::instance().remember(number(block), known);
      return nullptr;
    }
    if (was_seen) ForeignBlocks::report_end(number(block), known);
    return is_seen(nbytes) ? begin(resized, nbytes) : resized;
  }
  static void deallocate(void* context, void* block, std::size_t nbytes) {
    if (nbytes < least_) return next_.free(context, block, nbytes);
    const TraceUnseen unseen;
    ForeignBlocks::instance().end(number(block));
    next_.free(context, block, nbytes);
  }
  static void* begin(void* block, std::size_t nbytes) noexcept {
    if (block != nullptr) ForeignBlocks::instance().begin(owner_, number(block), nbytes);
    return block;
  }

  static inline DataMemAllocator next_{};
  static inline std::size_t least_ = 0;
  static inline ForeignOwner owner_{};
};

}  // namespace tensormem

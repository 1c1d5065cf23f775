// Owns: assertions at three levels. Allocator bugs surface only after particular patterns, so the source is full of
// these, and every structure has a `bool is_valid() const` that walks all of it.
//   TM_ASSERT    level 1: a comparison or two; on in tests and sanitizers
//   TM_EXPECT    level 2: a few loads more than the code it guards
//   TM_WALK      level 3: walks a whole structure; on in the native tests only
// TM_INVARIANT_LEVEL (0..3) is set by the build; release wheels use 0. A broken one is our bug: say where, then abort.
#pragma once

#include <cstdio>
#include <cstdlib>

#ifndef TM_INVARIANT_LEVEL
#define TM_INVARIANT_LEVEL 0
#endif

namespace tensormem {

[[noreturn, gnu::cold]] inline void invariant_broken(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tensormem: invariant broken: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace tensormem

#define TM_INVARIANT_CHECK_(condition) \
  ((condition) ? (void)0 : ::tensormem::invariant_broken(#condition, __FILE__, __LINE__))
// Compiled (so that it cannot rot) and never evaluated.
#define TM_INVARIANT_SKIP_(condition) ((void)sizeof(!(condition)))

#if TM_INVARIANT_LEVEL >= 1
#define TM_ASSERT(condition) TM_INVARIANT_CHECK_(condition)
#else
#define TM_ASSERT(condition) TM_INVARIANT_SKIP_(condition)
#endif

#if TM_INVARIANT_LEVEL >= 2
#define TM_EXPECT(condition) TM_INVARIANT_CHECK_(condition)
#else
#define TM_EXPECT(condition) TM_INVARIANT_SKIP_(condition)
#endif

#if TM_INVARIANT_LEVEL >= 3
#define TM_WALK(condition) TM_INVARIANT_CHECK_(condition)
#else
#define TM_WALK(condition) TM_INVARIANT_SKIP_(condition)
#endif

// Owns: the native test runner, in one small header. `TM_TEST("a sentence") { TM_CHECK(...); }`; link `runner.cpp`.
#pragma once

#include <cstdio>
#include <vector>

namespace tensormem::test {

struct Case {
  const char* sentence;
  void (*body)();
};

std::vector<Case>& cases();
void failed(const char* condition, const char* file, int line);

struct Registered {
  Registered(const char* sentence, void (*body)()) { cases().push_back({sentence, body}); }
};

}  // namespace tensormem::test

#define TM_JOIN2(a, b) a##b
#define TM_JOIN(a, b) TM_JOIN2(a, b)
#define TM_TEST(sentence)                                                                                     \
  static void TM_JOIN(tm_test_, __LINE__)();                                                                  \
  static const ::tensormem::test::Registered TM_JOIN(tm_registered_, __LINE__)(sentence,                      \
                                                                               &TM_JOIN(tm_test_, __LINE__)); \
  static void TM_JOIN(tm_test_, __LINE__)()

#define TM_CHECK(condition) ((condition) ? (void)0 : ::tensormem::test::failed(#condition, __FILE__, __LINE__))

#include <cstring>
#include <string_view>

#include "driver/host/host_driver.hpp"
#include "order/stream_holds.hpp"
#include "tests/check.hpp"

namespace tensormem::test {

namespace {
int g_failures = 0;
}

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

void failed(const char* condition, const char* file, int line) {
  ++g_failures;
  std::fprintf(stderr, "  %s:%d: expected %s\n", file, line, condition);
}

}  // namespace tensormem::test

// Runs every case whose sentence contains the first argument, or all of them.
int main(int argc, char** argv) {
  using namespace tensormem::test;
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  int run = 0;
  int broken = 0;
  for (const Case& each : cases()) {
    if (std::string_view(each.sentence).find(wanted) == std::string_view::npos) continue;
    const int before = g_failures;
    each.body();
    // What a case made has ended, and was walked then (level 3); this is what stays.
    TM_CHECK(tensormem::host_driver().is_valid() && tensormem::stream_holds().is_valid());
    ++run;
    if (g_failures != before) {
      ++broken;
      std::fprintf(stderr, "FAILED: %s\n", each.sentence);
    }
  }
  std::printf("%d passed, %d failed\n", run - broken, broken);
  return broken != 0 || run == 0 ? 1 : 0;
}

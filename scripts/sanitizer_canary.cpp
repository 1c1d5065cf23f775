// Owns: one planted mistake per sanitizer. `make sanitize` runs each before the tests: a sanitizer that stays silent
// here would stay silent about our code as well. Must not know: anything of tensormem.
#include <climits>
#include <cstring>
#include <thread>

static int use_after_free() {
  volatile char* bytes = new char[64];
  delete[] bytes;
  return bytes[8];
}

static int leak() {
  void* volatile lost = new char[64];
  lost = nullptr;
  return lost == nullptr ? 0 : 1;
}

static int signed_overflow(int arguments) {
  volatile int most = INT_MAX;
  return (most + arguments) == 0 ? 1 : 0;
}

static int data_race() {
  static int shared = 0;
  auto count = [] {
    for (int i = 0; i < 10'000; ++i) ++shared;
  };
  std::thread other(count);
  count();
  other.join();
  return 0;
}

int main(int argc, char** argv) {
  const char* mistake = argc > 1 ? argv[1] : "none";
  if (std::strcmp(mistake, "use-after-free") == 0) return use_after_free() * 0;
  if (std::strcmp(mistake, "leak") == 0) return leak();
  if (std::strcmp(mistake, "signed-overflow") == 0) return signed_overflow(argc);
  if (std::strcmp(mistake, "data-race") == 0) return data_race();
  return 0;
}

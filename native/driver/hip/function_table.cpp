#include "driver/hip/function_table.hpp"

#include <dlfcn.h>

namespace tensormem::hip {

namespace {

// The name without a number belongs to developers' packages; the others are what users have.
constexpr const char* kNames[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};

void* open_library(const std::string& path, std::string* why) {
  // Never closed again: others may hold its functions, and drivers do not like to be unloaded.
  constexpr int kHow = RTLD_NOW | RTLD_LOCAL;
  const char* const first = path.empty() ? kNames[0] : path.c_str();
  if (void* const library = dlopen(first, kHow); library != nullptr) return library;
  const char* const reason = dlerror();
  *why = std::string(first) + " cannot be opened: " + (reason != nullptr ? reason : "no reason given");
  for (const char* const name : kNames) {
    if (!path.empty()) break;
    if (void* const library = dlopen(name, kHow); library != nullptr) return library;
  }
  return nullptr;
}

// Functions are found by symbol. A simulated runtime has all of them, and tells which it would not have.
class Finder {
 public:
  explicit Finder(void* library)
      : library_(library),
        has_function_(reinterpret_cast<int (*)(const char*)>(dlsym(library, "tensormem_simgpu_has_function"))) {}

  bool is_simulated() const { return has_function_ != nullptr; }

  void* find(const char* name) const {
    const bool hidden = has_function_ != nullptr && has_function_(name) == 0;
    return hidden ? nullptr : dlsym(library_, name);
  }

 private:
  void* library_;
  int (*has_function_)(const char*);
};

}  // namespace

bool load_functions(const std::string& path, FunctionTable* table, std::string* why) {
  void* const library = open_library(path, why);
  if (library == nullptr) return false;
  const Finder finder(library);
  std::string missing;
#define TM_LOAD(function, needed, answer, signature) \
  table->function.set(finder.find(#function));       \
  if (needed == 1 && table->function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#function);
  TM_HIP_FUNCTIONS(TM_LOAD)
#undef TM_LOAD
  table->simulated = finder.is_simulated();
  *why = missing.empty() ? "" : "the HIP runtime has no " + missing;
  return missing.empty();
}

}  // namespace tensormem::hip

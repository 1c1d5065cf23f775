#include "driver/hip/function_table.hpp"

#include <dlfcn.h>

#include "driver/gpu/vendor_library.hpp"

namespace tensormem::hip {

namespace {

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

enum Index : std::size_t {
#define TM_INDEX(function, needed, answer, signature) k_##function,
  TM_HIP_FUNCTIONS(TM_INDEX)
#undef TM_INDEX
      kFunctionCount,
};

std::string version_text(int version) {
  if (version <= 0) return "";
  return " (" + std::to_string(version / 10'000'000) + "." + std::to_string(version % 10'000'000 / 100'000) + ")";
}

void count_calls(FunctionTable* table) {
  table->counters = std::shared_ptr<gpu::CallCounter[]>(new gpu::CallCounter[kFunctionCount]);
#define TM_COUNT(function, needed, answer, signature) table->function.count(&table->counters[k_##function]);
  TM_HIP_FUNCTIONS(TM_COUNT)
#undef TM_COUNT
}

}  // namespace

bool load_functions(const std::string& path, bool count, FunctionTable* table, std::string* why) {
  gpu::VendorLibrary opened;
  if (!gpu::open_library(path.empty() ? "libamdhip64.so" : path, &opened, why)) return false;
  table->library = opened.path;
  const Finder finder(opened.handle);
  if (dlsym(opened.handle, "hipInit") == nullptr) {
    *why = opened.path + " is not a HIP runtime: it has no hipInit";
    return false;
  }
  std::string missing;
#define TM_LOAD(function, needed, answer, signature) \
  table->function.set(finder.find(#function));       \
  if (needed == 1 && table->function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#function);
  TM_HIP_FUNCTIONS(TM_LOAD)
#undef TM_LOAD
  if (count) count_calls(table);
  table->simulated = finder.is_simulated();
  if (missing.empty()) return true;
  int version = 0;
  if (!(table->hipDriverGetVersion == nullptr)) (void)table->hipDriverGetVersion(&version);
  *why = "the HIP runtime is too old" + version_text(version) + ": it has no " + missing;
  return false;
}

std::vector<gpu::CallCount> calls_of(const FunctionTable& table) {
  std::vector<gpu::CallCount> calls;
  if (table.counters == nullptr) return calls;
#define TM_READ(function, needed, answer, signature) calls.push_back({#function, table.function.calls()});
  TM_HIP_FUNCTIONS(TM_READ)
#undef TM_READ
  return calls;
}

}  // namespace tensormem::hip

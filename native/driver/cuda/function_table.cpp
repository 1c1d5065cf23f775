#include "driver/cuda/function_table.hpp"

#include <dlfcn.h>

#include "driver/gpu/vendor_library.hpp"

namespace tensormem::cuda {

namespace {

using Find1 = Result (*)(const char*, void**, int, std::uint64_t);
using Find2 = Result (*)(const char*, void**, int, std::uint64_t, int*);

class Finder {
 public:
  explicit Finder(void* library)
      : newer_(reinterpret_cast<Find2>(dlsym(library, "cuGetProcAddress_v2"))),
        older_(reinterpret_cast<Find1>(dlsym(library, "cuGetProcAddress"))) {}

  bool works() const { return newer_ != nullptr || older_ != nullptr; }

  void* find(const char* name, int version) const {
    void* function = nullptr;
    int status = 0;
    const Result result =
        newer_ != nullptr ? newer_(name, &function, version, 0, &status) : older_(name, &function, version, 0);
    return result == kSuccess ? function : nullptr;
  }

 private:
  Find2 newer_;
  Find1 older_;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

enum Index : std::size_t {
#define TM_INDEX(function, version, needed, signature) k_##function,
  TM_CUDA_FUNCTIONS(TM_INDEX)
#undef TM_INDEX
      kFunctionCount,
};

void count_calls(FunctionTable* table) {
  table->counters = std::shared_ptr<gpu::CallCounter[]>(new gpu::CallCounter[kFunctionCount]);
#define TM_COUNT(function, version, needed, signature) table->function.count(&table->counters[k_##function]);
  TM_CUDA_FUNCTIONS(TM_COUNT)
#undef TM_COUNT
  table->cuMemAdvise_at.count(&table->counters[k_cuMemAdvise]);
}

}  // namespace

bool load_functions(const std::string& path, bool count, FunctionTable* table, std::string* why) {
  gpu::VendorLibrary opened;
  if (!gpu::open_library(path.empty() ? "libcuda.so.1" : path, &opened, why)) return false;
  void* const library = opened.handle;
  table->library = opened.path;
  const Finder finder(library);
  if (!finder.works() && dlsym(library, "cuInit") == nullptr) {
    *why = opened.path + " is not a CUDA driver: it has no cuInit";
    return false;
  }
  if (!finder.works()) {
    *why = "the CUDA driver is older than " + version_text(kOldestDriver) + ": it has no cuGetProcAddress";
    return false;
  }
  std::string missing;
#define TM_LOAD(function, version, needed, signature)   \
  table->function.set(finder.find(#function, version)); \
  if (needed == 1 && table->function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#function);
  TM_CUDA_FUNCTIONS(TM_LOAD)
#undef TM_LOAD
  if (count) count_calls(table);
  // cuGetProcAddress gives the newest form that a version knows: below this one it is the form of the table.
  constexpr int kAdviceByLocation = 12020;
  int version = 0;
  if (!(table->cuDriverGetVersion == nullptr) && table->cuDriverGetVersion(&version) == kSuccess &&
      version >= kAdviceByLocation) {
    table->cuMemAdvise_at.set(finder.find("cuMemAdvise", kAdviceByLocation));
  }
  table->simulated = dlsym(library, "tensormem_simgpu_is_open") != nullptr;
  if (!(table->cuDriverGetVersion == nullptr) && table->cuDriverGetVersion(&table->driver_version) == kSuccess &&
      table->driver_version < kOldestDriver) {
    *why = "the CUDA driver is version " + version_text(table->driver_version) + "; " + version_text(kOldestDriver) +
           " or newer is needed";
    return false;
  }
  if (missing.empty()) return true;
  *why = "the CUDA driver has no " + missing;
  return false;
}

std::vector<gpu::CallCount> calls_of(const FunctionTable& table) {
  std::vector<gpu::CallCount> calls;
  if (table.counters == nullptr) return calls;
#define TM_READ(function, version, needed, signature) calls.push_back({#function, table.function.calls()});
  TM_CUDA_FUNCTIONS(TM_READ)
#undef TM_READ
  return calls;
}

}  // namespace tensormem::cuda

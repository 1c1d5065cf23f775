// The few functions of NVML that programs ask before they use a GPU, answered by the simulated CUDA driver in the same
// folder: how many devices, their names, identities and memory, and the versions. Whatever else NVML has is not there.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

enum Answer : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kUnknown = 999,
};

constexpr const char* kVersion = "580.0";
std::atomic<int> g_users{0};

// The driver's library, beside this one.
void* driver() {
  static void* const library = [] {
    Dl_info facts{};
    if (dladdr(reinterpret_cast<const void*>(&driver), &facts) == 0 || facts.dli_fname == nullptr) {
      return static_cast<void*>(nullptr);
    }
    const std::string own = facts.dli_fname;
    const std::size_t slash = own.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : own.substr(0, slash + 1);
    return dlopen((folder + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  }();
  return library;
}

template <typename... Arguments>
bool ask(const char* function, Arguments... arguments) {
  void* const found = driver() == nullptr ? nullptr : dlsym(driver(), function);
  return found != nullptr && reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) == 0;
}

int give_text(const std::string& text, char* buffer, unsigned length) {
  if (buffer == nullptr) return kInvalidArgument;
  if (length <= text.size()) return kInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return kSuccess;
}

// A handle is the ordinal and one.
int ordinal_of(const void* handle, int* ordinal) {
  int count = 0;
  if (g_users == 0) return kUninitialized;
  if (!ask("cuDeviceGetCount", &count)) return kUnknown;
  *ordinal = static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1;
  return *ordinal >= 0 && *ordinal < count ? kSuccess : kInvalidArgument;
}

std::string identity_of(int ordinal) {
  unsigned char bytes[16] = {};
  (void)ask("cuDeviceGetUuid_v2", static_cast<void*>(bytes), ordinal);
  std::string text;
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", bytes[i]);
    text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(hex);
  }
  return text;
}

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Branch {
  unsigned version;
  char name[80];
};

}  // namespace

extern "C" {

#define SIM_NVML [[gnu::visibility("default")]] int

SIM_NVML nvmlInit_v2() {
  if (!ask("cuInit", 0U)) return kDriverNotLoaded;
  g_users += 1;
  return kSuccess;
}

SIM_NVML nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

SIM_NVML nvmlShutdown() {
  if (g_users == 0) return kUninitialized;
  g_users -= 1;
  return kSuccess;
}

[[gnu::visibility("default")]] const char* nvmlErrorString(int answer) {
  switch (answer) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

SIM_NVML nvmlSystemGetDriverVersion(char* text, unsigned length) { return give_text(kVersion, text, length); }

SIM_NVML nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return give_text(std::string("13.") + kVersion, text, length);
}

SIM_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  return ask("cuDriverGetVersion", version) ? kSuccess : kDriverNotLoaded;
}

SIM_NVML nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

SIM_NVML nvmlSystemGetDriverBranch(Branch* branch, unsigned length) {
  if (branch == nullptr) return kInvalidArgument;
  return give_text("simulated", branch->name, length < sizeof branch->name ? length : sizeof branch->name);
}

SIM_NVML nvmlDeviceGetCount_v2(unsigned* count) {
  int found = 0;
  if (count == nullptr) return kInvalidArgument;
  if (g_users == 0) return kUninitialized;
  if (!ask("cuDeviceGetCount", &found)) return kUnknown;
  *count = static_cast<unsigned>(found);
  return kSuccess;
}

SIM_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  int ordinal = 0;
  void* const handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  if (device == nullptr) return kInvalidArgument;
  if (const int answer = ordinal_of(handle, &ordinal); answer != kSuccess) return answer;
  *device = handle;
  return kSuccess;
}

SIM_NVML nvmlDeviceGetHandleByUUID(const char* text, void** device) {
  unsigned count = 0;
  if (text == nullptr || device == nullptr) return kInvalidArgument;
  if (const int answer = nvmlDeviceGetCount_v2(&count); answer != kSuccess) return answer;
  const std::string asked = std::strncmp(text, "GPU-", 4) == 0 ? text + 4 : text;
  for (unsigned index = 0; index < count; ++index) {
    if (identity_of(static_cast<int>(index)) == asked) return nvmlDeviceGetHandleByIndex_v2(index, device);
  }
  return kNotFound;
}

SIM_NVML nvmlDeviceGetIndex(void* device, unsigned* index) {
  int ordinal = 0;
  if (index == nullptr) return kInvalidArgument;
  if (const int answer = ordinal_of(device, &ordinal); answer != kSuccess) return answer;
  *index = static_cast<unsigned>(ordinal);
  return kSuccess;
}

SIM_NVML nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  int ordinal = 0;
  if (const int answer = ordinal_of(device, &ordinal); answer != kSuccess) return answer;
  return give_text("GPU-" + identity_of(ordinal), text, length);
}

SIM_NVML nvmlDeviceGetName(void* device, char* text, unsigned length) {
  int ordinal = 0;
  char name[96] = {};
  if (const int answer = ordinal_of(device, &ordinal); answer != kSuccess) return answer;
  if (!ask("cuDeviceGetName", static_cast<char*>(name), static_cast<int>(sizeof name), ordinal)) return kUnknown;
  return give_text(name, text, length);
}

SIM_NVML nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  int ordinal = 0;
  std::uint64_t used = 0;
  std::size_t total = 0;
  if (memory == nullptr) return kInvalidArgument;
  if (const int answer = ordinal_of(device, &ordinal); answer != kSuccess) return answer;
  if (!ask("cuDeviceTotalMem_v2", &total, ordinal)) return kUnknown;
  if (!ask("tensormem_simgpu_used_bytes", ordinal, &used)) return kUnknown;
  *memory = {total, total - used, used};
  return kSuccess;
}

}  // extern "C"

// How CUDA functions are found by name and version, and what its errors are called.
#include <cstring>
#include <string>

#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

struct Entry {
  const char* name;
  int version;
  void* function;
};

const Entry kEntries[] = {
#define SIM_ENTRY(asked, version, exported, signature) {#asked, version, reinterpret_cast<void*>(&exported)},
    SIM_CUDA_FUNCTIONS(SIM_ENTRY)
#undef SIM_ENTRY
};

enum Found : int { kFound = 0, kUnknownSymbol = 1, kNewerVersionNeeded = 2 };

// The newest form that the caller's version knows and the driver has.
Found find(const Config& config, const char* name, int version, void** function) {
  Found found = kUnknownSymbol;
  int best = -1;
  if (config.without.contains(name)) return found;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) != 0 || entry.version > config.version) continue;
    if (entry.version > version) {
      if (best < 0) found = kNewerVersionNeeded;
      continue;
    }
    if (entry.version <= best) continue;
    best = entry.version;
    *function = entry.function;
    found = kFound;
  }
  return found;
}

struct ErrorText {
  Result code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument is out of range"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "there is not enough memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised"},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "there is no device"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no device of this number"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "no context, or one that is not valid"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "already mapped"},
    {211, "CUDA_ERROR_NOT_MAPPED", "not mapped"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "these devices cannot reach one another's memory"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "a system call failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "a handle is not valid"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "a resource is not in the state for this"},
    {500, "CUDA_ERROR_NOT_FOUND", "there is no such symbol"},
    {600, "CUDA_ERROR_NOT_READY", "the work is not done yet"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "work touched memory that it must not"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the memory is registered already"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the memory is not registered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "work on the device failed"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "not permitted here"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the call is not permitted while a stream is being captured"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier call made the capture invalid"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "two captures would become one"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin on this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "work of another stream was not joined to the capture"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "captured work would wait for work outside of the capture"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the legacy stream would wait for captured work"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture began on another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "an unknown failure"},
};

Result give_text(Result error, const char** text, const char* ErrorText::* part) {
  if (text == nullptr) return simgpu::kInvalidValue;
  *text = nullptr;
  for (const ErrorText& each : kErrors) {
    if (each.code == error) *text = each.*part;
  }
  return *text == nullptr ? simgpu::kInvalidValue : simgpu::kSuccess;
}

}  // namespace

extern "C" {

Result cuGetErrorName(Result error, const char** text) { return give_text(error, text, &ErrorText::name); }

Result cuGetErrorString(Result error, const char** text) { return give_text(error, text, &ErrorText::text); }

Result cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags, int* status) {
  constexpr std::uint64_t kPerThreadDefault = 2;  // another meaning of stream 0, which is not simulated
  if (symbol == nullptr || function == nullptr) return simgpu::kInvalidValue;
  *function = nullptr;
  if ((flags & kPerThreadDefault) != 0) return kNotSupported;
  // Clients look functions up once and keep them, so this works while no machine is on, too.
  const std::shared_ptr<Machine> machine = current_machine();
  const Found found = find(machine == nullptr ? Config{} : machine->config, symbol, version, function);
  if (status != nullptr) *status = found;
  return found == kFound ? simgpu::kSuccess : simgpu::kNotFound;
}

Result cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"

}  // namespace tensormem::cuda

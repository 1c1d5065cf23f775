#include "cuda/serve.hpp"

#include <atomic>

namespace simgpu::cuda {

namespace {

std::atomic<std::uint64_t> g_initialized{0};

struct Stack {
  std::uint64_t machine = 0;
  std::vector<CurrentContext> contexts;
};

}  // namespace

bool is_initialized() { return g_initialized == machine_number(); }

void set_initialized() { g_initialized = machine_number(); }

std::vector<CurrentContext>& context_stack() {
  thread_local Stack stack;
  if (stack.machine != machine_number()) {
    stack.contexts.clear();
    stack.machine = machine_number();
  }
  return stack.contexts;
}

Device* current_device(Machine&) {
  const std::vector<CurrentContext>& stack = context_stack();
  return stack.empty() ? nullptr : stack.back().device;
}

Result find_context(Machine& machine, void* handle, Device** device) {
  for (const auto& each : machine.devices) {
    for (OwnContext& own : each->own_contexts) {
      if (&own != handle) continue;
      *device = each.get();
      return kSuccess;
    }
    if (each.get() != handle) continue;
    *device = each.get();
    return each->retained == 0 ? kContextIsDestroyed : kSuccess;
  }
  return kInvalidContext;
}

Result find_stream(Machine& machine, Device& current, void* handle, Stream** stream) {
  const std::uint64_t value = number(handle);
  if (value <= tensormem::cuda::kLegacyStream) {
    *stream = &machine.streams.legacy(current);
    return kSuccess;
  }
  if (value == tensormem::cuda::kPerThreadStream) {
    *stream = &machine.streams.of_this_thread(current);
    return kSuccess;
  }
  return machine.streams.find(handle, stream);
}

}  // namespace simgpu::cuda

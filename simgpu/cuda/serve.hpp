// Owns: the door of every CUDA function: the call is noted, the plan consulted, and the state checked (switched on, not
// forked, initialised, not inside a host function, a current context that is alive and not broken) before it does
// anything. Also the stack of current contexts of each thread.
// Must not know: what the functions do.
#pragma once

#include <initializer_list>
#include <memory>
#include <new>
#include <vector>

#include "core/call_book.hpp"
#include "core/machine.hpp"
#include "cuda/functions.hpp"

namespace simgpu::cuda {

// A primary context is its device; others have what is theirs noted where it matters.
struct CurrentContext {
  Device* device = nullptr;
  void* handle = nullptr;
};
std::vector<CurrentContext>& context_stack();
Device* current_device(Machine& machine);
// Alive contexts only; kInvalidContext for what never was one, kContextIsDestroyed for one whose last user let go.
Result find_context(Machine& machine, void* handle, Device** device);
// 0 and 1 are the legacy stream of the current context, 2 is the thread's own.
Result find_stream(Machine& machine, Device& current, void* handle, Stream** stream);

bool is_initialized();
void set_initialized();

inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

template <typename Body>
Result guarded(const char* function, bool needs_init, Body body) {
  if (is_in_callback()) return kNotPermitted;
  if (is_forked_child()) return kNotInitialized;
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return machine_number() == 0 ? kNoDevice : kDeinitialized;
  if (needs_init && !is_initialized()) return kNotInitialized;
  SIM_TRY(check_captures(*machine, function));
  return body(*machine);
}

template <typename Body>
Result serve_any(const char* function, std::initializer_list<std::uint64_t> arguments, bool needs_init, Body body) {
  CallBook::Ticket ticket;
  Result result = call_book().begin(function, arguments, &ticket);
  try {
    if (result == kSuccess) result = guarded(function, needs_init, body);
  } catch (const std::bad_alloc&) {
    result = kOutOfMemory;
  }
  Streams::wait_for_room();
  call_book().end(ticket, result);
  return result;
}

// A function that needs no context.
template <typename Body>
Result serve(const char* function, std::initializer_list<std::uint64_t> arguments, Body body) {
  return serve_any(function, arguments, true, body);
}

// A function that works in the current context; the body gets its device.
template <typename Body>
Result serve_in_context(const char* function, std::initializer_list<std::uint64_t> arguments, Body body) {
  return serve(function, arguments, [&](Machine& machine) {
    Device* device = nullptr;
    {
      const std::lock_guard lock(machine.mutex);
      device = current_device(machine);
      if (device == nullptr) return kInvalidContext;
      if (device->retained == 0 && device->own_contexts.empty()) return kContextIsDestroyed;
      if (device->broken != kSuccess) return device->broken;
    }
    return body(machine, *device);
  });
}

// A function of the stream-ordered allocator: the default streams are those of the current context; any other stream
// brings its own, and none need be current. The body has the machine's lock.
template <typename Body>
Result serve_on_stream(const char* function, std::initializer_list<std::uint64_t> arguments, void* handle, Body body) {
  if (number(handle) <= tensormem::cuda::kPerThreadStream) {
    return serve_in_context(function, arguments, [&](Machine& machine, Device& current) {
      const std::lock_guard lock(machine.mutex);
      Stream* stream = nullptr;
      SIM_TRY(find_stream(machine, current, handle, &stream));
      return body(machine, *stream);
    });
  }
  return serve(function, arguments, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Stream* stream = nullptr;
    SIM_TRY(machine.streams.find(handle, &stream));
    if (stream->device->retained == 0 && stream->own_context == nullptr) return kContextIsDestroyed;
    if (stream->device->broken != kSuccess) return stream->device->broken;
    return body(machine, *stream);
  });
}

}  // namespace simgpu::cuda

// Owns: the door of every HIP function: the call is noted, the plan consulted, and the state checked before it does
// anything. HIP has no contexts to push: each thread has a current device, 0 at first.
// Must not know: what the functions do.
#pragma once

#include <initializer_list>
#include <memory>
#include <new>

#include "core/call_book.hpp"
#include "core/machine.hpp"
#include "hip/functions.hpp"

namespace simgpu::hip {

// The current device of this thread; it starts anew with every machine.
int& current_ordinal();
// 0 and 1 are the null stream of the current device, 2 is the thread's own.
Result find_stream(Machine& machine, void* handle, Stream** stream);
// The current device, unless it is broken.
Result find_device(Machine& machine, Device** device);

template <typename Body>
Result guarded(const char* function, Body body) {
  if (is_in_callback()) return kNotPermitted;
  if (is_forked_child()) return kNotInitialized;
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return machine_number() == 0 ? kNoDevice : kDeinitialized;
  if (machine->devices.empty()) return kNoDevice;
  SIM_TRY(check_captures(*machine, function));
  return body(*machine);
}

// A client that found a function by its symbol although this machine's driver has none.
inline bool is_missing(const char* function) {
  const std::shared_ptr<Machine> machine = current_machine();
  return machine != nullptr && !machine->config.without.empty() && machine->config.without.contains(function);
}

// A function about the machine as a whole.
template <typename Body>
int serve(const char* function, std::initializer_list<std::uint64_t> arguments, Body body) {
  CallBook::Ticket ticket;
  Result result = call_book().begin(function, arguments, &ticket);
  try {
    if (result == kSuccess) result = is_missing(function) ? kNotSupported : guarded(function, body);
  } catch (const std::bad_alloc&) {
    result = kOutOfMemory;
  }
  Streams::wait_for_room();
  call_book().end(ticket, result);
  return result;
}

// A function that works on the current device, under the machine's lock.
template <typename Body>
int serve_on_device(const char* function, std::initializer_list<std::uint64_t> arguments, Body body) {
  return serve(function, arguments, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* device = nullptr;
    SIM_TRY(find_device(machine, &device));
    return body(machine, *device);
  });
}

// A function about a stream, under the machine's lock.
template <typename Body>
int serve_on_stream(const char* function, void* handle, Body body) {
  return serve(function, {reinterpret_cast<std::uint64_t>(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Stream* stream = nullptr;
    SIM_TRY(find_stream(machine, handle, &stream));
    if (stream->device->broken != kSuccess) return stream->device->broken;
    return body(machine, *stream);
  });
}

inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace simgpu::hip

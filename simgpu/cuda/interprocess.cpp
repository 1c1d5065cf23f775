// CUDA functions that give memory and events to other processes by handles of 64 bytes.
#include <unistd.h>

#include <bit>
#include <cstring>

#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

extern "C" {

Result cuIpcGetEventHandle(ProcessHandle* handle, EventPointer event_handle) {
  return serve("cuIpcGetEventHandle", {number(event_handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Event* event = nullptr;
    SIM_TRY(machine.streams.find_event(event_handle, &event));
    if (handle == nullptr || event->shared == nullptr) return simgpu::kInvalidValue;
    const ProcessNote note = event->shared->note();
    std::memcpy(handle, &note, sizeof note);
    return simgpu::kSuccess;
  });
}

Result cuIpcOpenEventHandle(EventPointer* event, ProcessHandle handle) {
  return serve_in_context("cuIpcOpenEventHandle", {}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    const auto note = std::bit_cast<ProcessNote>(handle);
    if (event == nullptr) return simgpu::kInvalidValue;
    std::shared_ptr<SharedEvent> shared;
    SIM_TRY(SharedEvent::open(note, &shared));
    constexpr unsigned kWithoutTimes = 2;
    Event* made = nullptr;
    SIM_TRY(machine.streams.create_event(device, kWithoutTimes, &made));
    made->shared = std::move(shared);
    made->recorded = true;
    *event = made;
    return simgpu::kSuccess;
  });
}

Result cuIpcGetMemHandle(ProcessHandle* handle, DevicePointer address) {
  return serve_in_context("cuIpcGetMemHandle", {address}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    const Range* const range = machine.memory.find(address);
    const bool fits = handle != nullptr && range != nullptr && range->kind == Kind::device;
    if (!fits || !machine.config.posix_handles) return fits ? kNotSupported : simgpu::kInvalidValue;
    ProcessNote note;
    note.mark = kMemoryMark;
    note.process = getpid();
    note.fd = range->window->file();
    note.offset = range->start - range->window->start();
    note.size = range->size;
    std::memcpy(handle, &note, sizeof note);
    return simgpu::kSuccess;
  });
}

Result cuIpcOpenMemHandle_v2(DevicePointer* address, ProcessHandle handle, unsigned flags) {
  return serve_in_context("cuIpcOpenMemHandle", {flags}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    const auto note = std::bit_cast<ProcessNote>(handle);
    if (address == nullptr || flags > 1) return simgpu::kInvalidValue;
    int fd = -1;
    SIM_TRY(open_note(note, kMemoryMark, &fd));
    void* external = nullptr;
    if (const auto imported = machine.externals.import(device, fd, note.offset + note.size, &external);
        imported != simgpu::kSuccess) {
      ::close(fd);
      return imported;
    }
    const simgpu::Result mapped = machine.externals.map(external, note.offset, note.size, address);
    (void)machine.externals.destroy(external);
    return mapped;
  });
}

Result cuIpcCloseMemHandle(DevicePointer address) {
  return serve_in_context("cuIpcCloseMemHandle", {address}, [&](Machine& machine, Device&) {
    {
      const std::lock_guard lock(machine.mutex);
      const Range* const range = machine.memory.find_start(address);
      if (range == nullptr || range->kind != Kind::external) return simgpu::kInvalidValue;
    }
    return machine.deallocate(address, Kind::external);
  });
}

}  // extern "C"

}  // namespace tensormem::cuda

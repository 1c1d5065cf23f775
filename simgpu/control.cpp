#include "control.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/call_book.hpp"
#include "core/machine.hpp"

using namespace simgpu;

namespace {

std::size_t give_text(const std::string& text, char* buffer, std::size_t capacity) {
  if (buffer != nullptr && capacity != 0) {
    const std::size_t count = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), count);
    buffer[count] = '\0';
  }
  return text.size() + 1;
}

std::string place(int device) { return device < 0 ? "host" : std::to_string(device); }

std::string words_of(const AdviceNote& note) {
  std::string words = note.read_mostly ? "read_mostly" : "";
  if (note.preferred != AdviceNote::kNowhere) words += " preferred_location=" + place(note.preferred);
  if (note.accessed_by_host) words += " accessed_by=host";
  for (int device = 0; device < 32; ++device) {
    if ((note.accessed_by >> device & 1U) != 0) words += " accessed_by=" + place(device);
  }
  return words;
}

}  // namespace

extern "C" {

int tensormem_simgpu_open(const char* config, char* why, std::size_t capacity) {
  std::string reason;
  open_machine(config, &reason);
  (void)give_text(reason, why, capacity);
  return reason.empty() ? 0 : 1;
}

void tensormem_simgpu_close(void) { close_machine(); }

int tensormem_simgpu_is_open(void) { return current_machine() != nullptr ? 1 : 0; }

void tensormem_simgpu_fail(const char* function, std::uint64_t nth, int result) {
  call_book().fail(function, nth, static_cast<Result>(result));
}

int tensormem_simgpu_has_fired(void) { return call_book().has_fired() ? 1 : 0; }

void tensormem_simgpu_delay(const char* function, std::uint64_t nanoseconds) {
  call_book().delay(function, nanoseconds);
}

void tensormem_simgpu_delay_work(const char* function, std::uint64_t nanoseconds) {
  call_book().delay_work(function, nanoseconds);
}

int tensormem_simgpu_has_function(const char* function) {
  const std::shared_ptr<Machine> machine = current_machine();
  return machine == nullptr || !machine->config.without.contains(function) ? 1 : 0;
}

void tensormem_simgpu_hold(const char* function, std::uint64_t nanoseconds) { call_book().hold(function, nanoseconds); }

int tensormem_simgpu_wait_until_held(std::uint64_t nanoseconds) {
  return call_book().wait_until_held(nanoseconds) ? 1 : 0;
}

void tensormem_simgpu_let_go(void) { call_book().let_go(); }

std::uint64_t tensormem_simgpu_missed(void) { return call_book().missed(); }

void tensormem_simgpu_clear_plan(void) { call_book().clear_plan(); }

std::uint64_t tensormem_simgpu_calls(const char* function) { return call_book().count(function); }

std::uint64_t tensormem_simgpu_timing_records(void) {
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return 0;
  const std::lock_guard lock(machine->mutex);
  return machine->streams.timing_record_count();
}

std::uint64_t tensormem_simgpu_nanoseconds(void) { return call_book().nanoseconds(); }

std::size_t tensormem_simgpu_log(char* buffer, std::size_t capacity) {
  return give_text(call_book().text(), buffer, capacity);
}

std::size_t tensormem_simgpu_report(char* buffer, std::size_t capacity) {
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return give_text("", buffer, capacity);
  const std::lock_guard lock(machine->mutex);
  return give_text(machine->report(), buffer, capacity);
}

std::size_t tensormem_simgpu_advice(std::uint64_t address, char* buffer, std::size_t capacity) {
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return give_text("", buffer, capacity);
  const std::lock_guard lock(machine->mutex);
  const Range* const range = machine->memory.find(address);
  return give_text(range == nullptr ? "" : words_of(range->advice), buffer, capacity);
}

int tensormem_simgpu_break_device(int ordinal, int result) {
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return kDeinitialized;
  const std::lock_guard lock(machine->mutex);
  Device* const device = machine->device(ordinal);
  if (device == nullptr) return kInvalidDevice;
  device->broken = static_cast<Result>(result);
  return kSuccess;
}

int tensormem_simgpu_used_bytes(int ordinal, std::uint64_t* nbytes) {
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return kDeinitialized;
  const std::lock_guard lock(machine->mutex);
  const Device* const device = machine->device(ordinal);
  if (device == nullptr || nbytes == nullptr) return kInvalidValue;
  *nbytes = device->used;
  return kSuccess;
}

int tensormem_simgpu_touch(void* handle, std::uint64_t address, std::uint64_t nbytes, int write) {
  const std::shared_ptr<Machine> machine = current_machine();
  if (machine == nullptr) return kDeinitialized;
  std::unique_lock lock(machine->mutex);
  Stream* stream = nullptr;
  if (handle == nullptr) {
    if (machine->devices.empty()) return kNoDevice;
    stream = &machine->streams.legacy(*machine->devices[0]);
  } else {
    SIM_TRY(machine->streams.find(handle, &stream));
  }
  const Result touched = machine->touch(address, nbytes, write != 0, *stream);
  lock.unlock();
  Streams::wait_for_room();
  return touched;
}

}  // extern "C"

#include "core/machine.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/call_book.hpp"
#include "driver/host/os.hpp"

namespace simgpu {

namespace {

using tensormem::host::os::page_size;
constexpr std::uint64_t kWindowAlignment = 2ULL << 20;

std::mutex g_mutex;
std::shared_ptr<Machine>& slot() {
  static auto* const machine = new std::shared_ptr<Machine>;  // never destroyed: calls may come very late
  return *machine;
}
std::atomic<std::uint64_t> g_number{0};
std::atomic<bool> g_asked_environment{false};
std::atomic<bool> g_forked{false};

std::uint64_t round_up(std::uint64_t size, std::uint64_t grain) { return (size + grain - 1) & ~(grain - 1); }

void forget_after_fork() {
  if (slot() != nullptr) g_forked = true;
}

// An environment that names a machine switches it on at the first call; without one the library serves nothing.
void ask_environment() {
  if (g_asked_environment.exchange(true)) return;
  const char* const text = std::getenv("TENSORMEM_SIMGPU");
  if (text == nullptr || slot() != nullptr || *text == '\0' || std::strcmp(text, "off") == 0) return;
  std::string why;
  open_machine(text, &why);
  if (!why.empty()) std::fprintf(stderr, "TENSORMEM_SIMGPU: %s\n", why.c_str());
}

}  // namespace

std::shared_ptr<Machine> current_machine() {
  ask_environment();
  const std::lock_guard lock(g_mutex);
  return g_forked ? nullptr : slot();
}

bool is_forked_child() { return g_forked; }

std::uint64_t machine_number() { return g_number; }

void open_machine(const std::string& text, std::string* why) {
  Config config;
  if (!parse_config(text, &config, why)) return;
  close_machine();
  static const int registered = pthread_atfork(nullptr, nullptr, forget_after_fork);
  if (registered != 0) *why = "no fork handler could be registered";
  auto machine = std::make_shared<Machine>(config);
  if (machine->devices.size() != config.memory_bytes.size()) *why = "no addresses for so much device memory";
  if (!why->empty()) return;
  call_book().forget();
  call_book().clear_plan();
  const std::lock_guard lock(g_mutex);
  g_asked_environment = true;
  g_number += 1;
  slot() = std::move(machine);
}

void close_machine() {
  std::shared_ptr<Machine> machine;
  {
    const std::lock_guard lock(g_mutex);
    machine = std::move(slot());
    slot() = nullptr;
  }
  if (machine != nullptr && !g_forked) machine->close();
}

Machine::Machine(const Config& wanted) : config(wanted) {
  for (const std::uint64_t bytes : wanted.memory_bytes) {
    auto device = std::make_unique<Device>();
    device->ordinal = static_cast<int>(devices.size());
    device->total = bytes;
    // Twice the addresses, so that a hole between allocations does not make memory unusable.
    if (device->window.open(2 * bytes, kWindowAlignment, true) != 0) return;
    device->heap.open(device->window.start(), device->window.size());
    memory.add_window(device->window);
    devices.push_back(std::move(device));
  }
}

// --- Plain memory ------------------------------------------------------------------------------------------------

Result Machine::allocate(Device& device, std::uint64_t nbytes, std::uint64_t* address) {
  const std::uint64_t size = round_up(nbytes, Heap::kGrain);
  if (size < nbytes) return kOutOfMemory;
  SIM_TRY(device.take(size, address));
  Range range;
  range.start = *address;
  range.size = size;
  range.device = &device;
  range.window = &device.window;
  memory.add(range);
  return kSuccess;
}

Result Machine::allocate_host(Device* device, std::uint64_t nbytes, Kind kind, std::uint64_t* address) {
  const std::uint64_t size = round_up(nbytes, page_size());
  if (size < nbytes || size > 1ULL << 46) return kOutOfMemory;
  void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return kOutOfMemory;
  Range range;
  range.start = reinterpret_cast<std::uint64_t>(got);
  range.size = size;
  range.kind = kind;
  range.device = device;
  memory.add(range);
  *address = range.start;
  return kSuccess;
}

Result Machine::register_host(std::uint64_t address, std::uint64_t nbytes) {
  if (address == 0 || nbytes == 0 || address + nbytes < address) return kInvalidValue;
  if (memory.is_device_address(address)) return kInvalidValue;
  if (memory.overlaps(address, nbytes)) return kAlreadyRegistered;
  Range range;
  range.start = address;
  range.size = nbytes;
  range.kind = Kind::registered;
  memory.add(range);
  return kSuccess;
}

Result Machine::advise(std::uint64_t address, std::uint64_t nbytes, int advice, int where) {
  enum : int { kReadMostly = 1, kUnsetReadMostly, kPreferred, kUnsetPreferred, kAccessedBy, kUnsetAccessedBy };
  Range* const range = memory.find(address);
  if (advice < kReadMostly || advice > kUnsetAccessedBy) return kInvalidValue;
  const bool about_place = advice == kPreferred || advice >= kAccessedBy;
  if (about_place && where != -1 && device(where) == nullptr) return kInvalidDevice;
  const bool fits =
      range != nullptr && range->is_managed() && nbytes != 0 && nbytes <= range->size - (address - range->start);
  if (!fits) return kInvalidValue;
  AdviceNote& note = range->advice;
  if (advice <= kUnsetReadMostly) {
    note.read_mostly = advice == kReadMostly;
  } else if (advice <= kUnsetPreferred) {
    note.preferred = advice == kPreferred ? where : AdviceNote::kNowhere;
  } else if (where == -1) {
    note.accessed_by_host = advice == kAccessedBy;
  } else {
    const std::uint32_t bit = 1U << where;
    note.accessed_by = advice == kAccessedBy ? note.accessed_by | bit : note.accessed_by & ~bit;
  }
  return kSuccess;
}

std::vector<HostPoint> Machine::work_before_end_of(const Range& range) {
  std::vector<HostPoint> points;
  const bool is_used = !range.uses.empty();
  for (const auto& device : devices) {
    const bool waits = config.habits.free_waits && (range.device == device.get() || range.window == nullptr);
    if (!is_used && !waits) continue;
    for (const HostPoint& end : streams.ends_of(*device)) points.push_back(end);
  }
  return points;
}

// Freeing waits for the work that touches the memory; by habit, for all work of the device.
Result Machine::deallocate(std::uint64_t address, Kind kind) {
  std::vector<HostPoint> points;
  {
    const std::lock_guard lock(mutex);
    const Range* const range = memory.find_start(address);
    const bool freed_as_device = range != nullptr && (range->kind == Kind::managed || range->kind == Kind::pooled ||
                                                      range->kind == Kind::external);
    const bool fits = range != nullptr && (range->kind == kind || (kind == Kind::device && freed_as_device));
    if (!fits) return kInvalidValue;
    points = work_before_end_of(*range);
  }
  for (const HostPoint& point : points) point.wait();
  const std::lock_guard lock(mutex);
  const Range* const range = memory.find_start(address);
  if (range == nullptr) return kInvalidValue;
  if (range->kind == Kind::pooled) return pools.deallocate(address, streams.legacy(*range->device));
  if (range->kind == Kind::external) {
    externals.unmap(address);
  } else if (range->window != nullptr) {
    range->device->give_back(range->start, range->size);
  } else {
    munmap(reinterpret_cast<void*>(range->start), range->size);
  }
  memory.remove(address);
  return kSuccess;
}

Result Machine::unregister_host(std::uint64_t address) {
  std::vector<HostPoint> points;
  {
    const std::lock_guard lock(mutex);
    const Range* const range = memory.find_start(address);
    if (range == nullptr || range->kind != Kind::registered) return kNotRegistered;
    if (config.habits.free_waits) points = work_before_end_of(*range);
  }
  for (const HostPoint& point : points) point.wait();
  const std::lock_guard lock(mutex);
  const Range* const range = memory.find_start(address);
  if (range == nullptr || range->kind != Kind::registered) return kNotRegistered;
  memory.remove(address);
  return kSuccess;
}

// Pages must not go from under work that touches them.
Result Machine::unmap(std::uint64_t address, std::uint64_t size) {
  std::vector<HostPoint> points;
  {
    const std::lock_guard lock(mutex);
    memory.for_each([&](const Range& range) {
      if (range.kind != Kind::mapped || range.start - address >= size) return;
      for (const HostPoint& point : work_before_end_of(range)) points.push_back(point);
    });
  }
  for (const HostPoint& point : points) point.wait();
  const std::lock_guard lock(mutex);
  return virtual_memory.unmap(address, size);
}

// --- Waiting -----------------------------------------------------------------------------------------------------

Result Machine::synchronize(Stream& stream) {
  HostPoint end;
  Clock clock;
  {
    const std::lock_guard lock(mutex);
    end = streams.end_of(stream);
    clock = stream.clock;
    clock.raise(stream.now());
  }
  end.wait();
  const std::lock_guard lock(mutex);
  streams.host_saw(clock);
  pools.on_synchronize(*stream.device);
  return stream.device->broken;
}

Result Machine::synchronize(Event& event) {
  Clock clock;
  {
    const std::lock_guard lock(mutex);
    clock = event.clock;
  }
  Streams::wait_for(event);
  const std::lock_guard lock(mutex);
  streams.host_saw(clock);
  pools.on_synchronize(*event.device);
  return event.device->broken;
}

Result Machine::synchronize(Device& device) {
  std::vector<Stream*> all;
  {
    const std::lock_guard lock(mutex);
    all = streams.of(device);
  }
  for (Stream* stream : all) SIM_TRY(synchronize(*stream));
  return device.broken;
}

// --- Ends --------------------------------------------------------------------------------------------------------

void Machine::violation(const std::string& what, std::uint64_t address) {
  char where[32];
  std::snprintf(where, sizeof where, " (0x%llx)", static_cast<unsigned long long>(address));
  violations.push_back(what + where);
}

void Machine::destroy_context(Device& device) {
  streams.destroy_all(device);
  std::vector<Range> gone;
  memory.for_each([&](const Range& range) {
    if (range.device == &device && range.kind != Kind::mapped) gone.push_back(range);
  });
  for (const Range& range : gone) {
    memory.remove(range.start);
    if (range.kind == Kind::pooled && range.imports == 0) {
      range.pool->reserved -= range.size;
      range.pool->used -= range.size;
      range.pool->live -= 1;
    }
    if (range.kind == Kind::external) {
      externals.unmap(range.start);
    } else if (range.kind == Kind::pooled && range.pool->arena != nullptr) {
      if (range.imports == 0) pools.give_back(*range.pool, range.start, range.size);
    } else if (range.window != nullptr) {
      device.give_back(range.start, range.size);
    } else if (range.kind != Kind::registered) {
      munmap(reinterpret_cast<void*>(range.start), range.size);
    }
  }
  device.broken = kSuccess;
  device.peers = 0;
}

std::string Machine::report() {
  std::uint64_t counts[7] = {};
  std::uint64_t bytes = 0;
  memory.for_each([&](const Range& range) {
    counts[static_cast<int>(range.kind)] += 1;
    if (range.kind == Kind::device || range.kind == Kind::pooled) bytes += range.size;
  });
  std::uint64_t contexts = 0;
  for (const auto& device : devices) contexts += device->retained;
  const std::pair<const char*, std::uint64_t> lines[] = {
      {"allocations", counts[static_cast<int>(Kind::device)]},
      {"pool_allocations", counts[static_cast<int>(Kind::pooled)]},
      {"allocated_bytes", bytes},
      {"host_allocations", counts[static_cast<int>(Kind::host)]},
      {"registrations", counts[static_cast<int>(Kind::registered)]},
      {"managed_allocations", counts[static_cast<int>(Kind::managed)]},
      {"reservations", virtual_memory.reservation_count()},
      {"mappings", virtual_memory.mapping_count()},
      {"physicals", virtual_memory.physical_count()},
      {"external_memories", externals.count()},
      {"external_buffers", counts[static_cast<int>(Kind::external)]},
      {"streams", streams.own_count()},
      {"events", streams.event_count()},
      {"pools", pools.own_count()},
      {"contexts", contexts},
  };
  std::string text;
  for (const auto& [name, value] : lines) text += std::string(name) + "=" + std::to_string(value) + "\n";
  for (const std::string& each : violations) text += "violation=" + each + "\n";
  return text;
}

void Machine::close() {
  for (const auto& device : devices) (void)synchronize(*device);
  const std::lock_guard lock(mutex);
  for (const auto& device : devices) destroy_context(*device);
  streams.close();
}

}  // namespace simgpu

// Owns: the simulated machine: its devices, and everything applications made on them, under one lock. Nothing waits
// while it is held. A machine is opened by a configuration and closed with a report of what was left behind; handles of
// an earlier machine mean nothing to the next.
// Must not know: the names and types of CUDA or HIP.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/captures.hpp"
#include "core/config.hpp"
#include "core/device.hpp"
#include "core/externals.hpp"
#include "core/memory_map.hpp"
#include "core/pools.hpp"
#include "core/results.hpp"
#include "core/streams.hpp"
#include "core/virtual_memory.hpp"
#include "driver/host/copy.hpp"

namespace simgpu {

class Machine {
 public:
  explicit Machine(const Config& config);

  // --- With the lock -----------------------------------------------------------------------------------------------
  Device* device(int ordinal) {
    const bool known = ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices.size();
    return known ? devices[static_cast<std::size_t>(ordinal)].get() : nullptr;
  }
  Result allocate(Device& device, std::uint64_t nbytes, std::uint64_t* address);
  Result allocate_host(Device* device, std::uint64_t nbytes, Kind kind, std::uint64_t* address);
  Result register_host(std::uint64_t address, std::uint64_t nbytes);
  // By the numbers that both vendors have: 1 to 6. `device` -1 is the host.
  Result advise(std::uint64_t address, std::uint64_t nbytes, int advice, int device);
  // Work with the public addresses of the caller. What is returned must be waited for when `*wait` says so.
  // `who` copies: the stream's device, or the owners of both places, when the call names them.
  Result copy(const tensormem::host::CopyWork& work, Stream& stream, By who, HostPoint* wait);
  Result fill(const tensormem::host::FillWork& work, Stream& stream);
  Result call_back(void (*function)(void*), void* argument, Stream& stream);
  // What a kernel would do: touch the bytes at its place in the stream.
  Result touch(std::uint64_t address, std::uint64_t nbytes, bool write, Stream& stream);
  void check_order(const Range& range, const Stream& stream, const char* verb);
  void violation(const std::string& what, std::uint64_t address);
  // Everything the context owns goes, as it does when a context is destroyed.
  void destroy_context(Device& device);
  std::string report();

  // --- Without it: these wait ----------------------------------------------------------------------------------------
  Result deallocate(std::uint64_t address, Kind kind);
  Result unregister_host(std::uint64_t address);
  Result unmap(std::uint64_t address, std::uint64_t size);
  Result synchronize(Stream& stream);
  Result synchronize(Event& event);
  Result synchronize(Device& device);
  void close();

  std::mutex mutex;
  const Config config;
  std::vector<std::unique_ptr<Device>> devices;
  MemoryMap memory;
  Streams streams{config};
  Pools pools{*this};
  VirtualMemory virtual_memory{*this};
  Externals externals{*this};
  Captures captures{*this};
  std::vector<std::string> violations;

 private:
  Result resolve(const tensormem::Pitched& place, const tensormem::CopyShape& shape, const Access& access, Span* span);
  Access access_of(const Stream& stream, bool write, By who) const;
  void note_uses(const Span& span, Stream& stream);
  // The work that must be done before a range may end.
  std::vector<HostPoint> work_before_end_of(const Range& range);
};

// What a call is told before it does anything, while streams are being captured.
Result check_captures(Machine& machine, const char* function);

// The machine that is switched on; null when none is, and in the child of a fork.
std::shared_ptr<Machine> current_machine();
// Replaces the machine. An empty `*why` means that it worked.
void open_machine(const std::string& config, std::string* why);
void close_machine();
// Whether a machine was on when this process was forked off.
bool is_forked_child();
// Whether the calling thread is running a host function of a stream: driver calls are not permitted there.
bool is_in_callback();
// Each machine has its own number; thread-local state of an earlier one is stale.
std::uint64_t machine_number();

}  // namespace simgpu

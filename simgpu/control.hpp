// Owns: the switchboard of the simulated GPU: a few C functions that tests call beside the driver's own. They are
// exported by both libraries, each for its own machine.
// Must not know: the driver interfaces.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

#define SIM_CONTROL [[gnu::visibility("default")]]

// Switch a machine on, replacing the one that is. 0, or 1 with the reason in `why` (cut to `capacity`).
SIM_CONTROL int tensormem_simgpu_open(const char* config, char* why, std::size_t capacity);
SIM_CONTROL void tensormem_simgpu_close(void);
SIM_CONTROL int tensormem_simgpu_is_open(void);

// Whether the driver of this machine has a function; a driver that is found by symbol alone cannot say it otherwise.
SIM_CONTROL int tensormem_simgpu_has_function(const char* function);

// Fail the nth call from now on (1: the next) of a function, "*" for any, with this answer, once.
SIM_CONTROL void tensormem_simgpu_fail(const char* function, std::uint64_t nth, int result);
SIM_CONTROL int tensormem_simgpu_has_fired(void);
// Every call of the function takes so long from now on.
SIM_CONTROL void tensormem_simgpu_delay(const char* function, std::uint64_t nanoseconds);
// The work it puts on a stream takes so long there; the call does not.
SIM_CONTROL void tensormem_simgpu_delay_work(const char* function, std::uint64_t nanoseconds);
// Every call of the function waits until it is let go, or so long; "" ends it. `wait_until_held` says whether one does.
SIM_CONTROL void tensormem_simgpu_hold(const char* function, std::uint64_t nanoseconds);
SIM_CONTROL int tensormem_simgpu_wait_until_held(std::uint64_t nanoseconds);
SIM_CONTROL void tensormem_simgpu_let_go(void);
// How many held calls were not let go in time.
SIM_CONTROL std::uint64_t tensormem_simgpu_missed(void);
SIM_CONTROL void tensormem_simgpu_clear_plan(void);
SIM_CONTROL std::uint64_t tensormem_simgpu_calls(const char* function);
// How often an event was recorded that keeps the time: what a program that only orders its work does not need.
SIM_CONTROL std::uint64_t tensormem_simgpu_timing_records(void);
// How long all calls took together: the simulation's own time, to be taken off a client's.
SIM_CONTROL std::uint64_t tensormem_simgpu_nanoseconds(void);

// Texts: the bytes they need, zero included; as much as fits is written. Call again with more room if it did not.
SIM_CONTROL std::size_t tensormem_simgpu_log(char* buffer, std::size_t capacity);
SIM_CONTROL std::size_t tensormem_simgpu_report(char* buffer, std::size_t capacity);

// What was said about the managed memory at an address, in words; empty where nothing was, or nothing is managed.
SIM_CONTROL std::size_t tensormem_simgpu_advice(std::uint64_t address, char* buffer, std::size_t capacity);

// The device answers `result` to everything until its context is reset: what a device that is lost does.
SIM_CONTROL int tensormem_simgpu_break_device(int ordinal, int result);
// How much of the device's memory is taken, whoever took it. The simulated NVML asks.
SIM_CONTROL int tensormem_simgpu_used_bytes(int ordinal, std::uint64_t* nbytes);
// What a kernel on the stream would do: touch these bytes.
SIM_CONTROL int tensormem_simgpu_touch(void* stream, std::uint64_t address, std::uint64_t nbytes, int write);

}  // extern "C"

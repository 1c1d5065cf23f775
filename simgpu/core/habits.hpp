// Owns: the habits of real drivers that the simulated one has, each by a name that switches it on or off. Where each
// comes from stands in docs/explanation/gpus.md.
// Must not know: who keeps to them.
#pragma once

namespace simgpu {

// free_waits: freeing and unpinning wait for all work of the device.
// serial_host_functions: host functions of all streams run one at a time.
// peer_grants: a device reaches memory of another only with a grant, or by a copy that names both.
// sizeless_descriptors: descriptors of exported memory have no size.
// bounded_queue: a call that queues work waits while its stream has too much of it.
// capture_rules: calls that a capture forbids are refused, and make it invalid.
// zero_byte_pools: a pool allocates 0 bytes.
// import_by_pointer: memory is imported by the address of its descriptor, not by its value.
// timing_cost: recording an event that keeps the time takes time on the stream.
#define SIM_HABITS(X)      \
  X(free_waits)            \
  X(serial_host_functions) \
  X(peer_grants)           \
  X(sizeless_descriptors)  \
  X(bounded_queue)         \
  X(capture_rules)         \
  X(zero_byte_pools)       \
  X(import_by_pointer)     \
  X(timing_cost)

struct Habits {
#define SIM_HABIT(name) bool name = true;
  SIM_HABITS(SIM_HABIT)
#undef SIM_HABIT
};

}  // namespace simgpu

// Owns: streams whose work is written down instead of run, the graphs that come of it, and the rules of both vendors
// for it: which streams are in a capture, what makes one invalid, who may end it, and which calls are refused
// meanwhile. Must not know: what the work does. Guarded by the machine's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/results.hpp"
#include "core/streams.hpp"
#include "driver/host/task_queue.hpp"

namespace simgpu {

class Machine;

enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

struct Graph {
  std::vector<tensormem::host::Task> work;
  std::vector<std::uint64_t> memory;  // addresses that pools gave to the capture
  std::uint64_t users = 1;            // the graph itself, and whatever was made of it to be launched
};

struct Capture {
  std::uint64_t id = 0;
  CaptureMode mode = CaptureMode::global;
  std::uint64_t thread = 0;
  Stream* origin = nullptr;
  bool invalid = false;
  std::map<Stream*, std::uint64_t> streams;  // with the number of their latest work when they joined
  std::shared_ptr<Graph> graph;
};

// Calls that both vendors call unsafe while a stream is being captured, by name.
bool is_unsafe_in_capture(const char* function);

class Captures {
 public:
  explicit Captures(Machine& machine) : machine_(machine) {}

  Result begin(Stream& stream, int mode);
  Result end(Stream& stream, void** graph);
  // 0: none, 1: under way, 2: invalid.
  Result status(const Stream& stream, int* status, std::uint64_t* id) const;
  // The mode of the calling thread is `*mode` from now on; `*mode` is what it was.
  Result exchange_mode(int* mode) const;

  bool any() const { return count_ != 0; }
  // What a call that is unsafe during captures is told, which makes those invalid that forbid it.
  Result check_unsafe();
  // The same for waiting for a stream, an event or a device that is part of one.
  Result check_wait(const Stream& stream);
  Result check_wait(const Event& event);
  Result check_wait(const Device& device);

  Result find_graph(void* handle, std::shared_ptr<Graph>* graph) const;
  Result instantiate(void* graph, void** executable);
  Result launch(void* executable, Stream& stream);
  Result destroy_graph(void* handle);
  Result destroy_executable(void* handle);

 private:
  Result refuse(Capture& capture, Result result) const;
  void forget(Capture& capture);
  void forget_orphans();
  void release(Graph& graph);

  Machine& machine_;
  std::map<std::uint64_t, std::unique_ptr<Capture>> captures_;
  std::unordered_map<void*, std::shared_ptr<Graph>> graphs_;
  std::unordered_map<void*, std::shared_ptr<Graph>> executables_;
  std::uint64_t next_ = 1;
  std::atomic<std::size_t> count_{0};  // may be read without the lock
};

}  // namespace simgpu

#include "core/captures.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/machine.hpp"

namespace simgpu {

namespace {

struct ThreadMode {
  std::uint64_t machine = 0;
  CaptureMode mode = CaptureMode::global;
};

CaptureMode& thread_mode() {
  thread_local ThreadMode own;
  if (own.machine != machine_number()) own = {machine_number(), CaptureMode::global};
  return own.mode;
}

constexpr std::string_view kUnsafe[] = {
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemAllocManaged",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuMemUnmap",
    "hipMalloc",
    "hipFree",
    "hipHostMalloc",
    "hipHostFree",
    "hipMallocManaged",
    "hipHostRegister",
    "hipHostUnregister",
    "hipStreamQuery",
    "hipStreamSynchronize",
    "hipEventQuery",
    "hipEventSynchronize",
    "hipDeviceSynchronize",
    "hipMemUnmap",
};

bool is_mode(int mode) { return mode >= 0 && mode <= static_cast<int>(CaptureMode::relaxed); }

}  // namespace

bool is_unsafe_in_capture(const char* function) { return std::ranges::find(kUnsafe, function) != std::end(kUnsafe); }

// Without the habit nothing that is done meanwhile hurts a capture.
Result Captures::refuse(Capture& capture, Result result) const {
  if (!machine_.config.habits.capture_rules) return kSuccess;
  capture.invalid = true;
  return result;
}

Result Captures::begin(Stream& stream, int mode) {
  if (!is_mode(mode)) return kInvalidValue;
  if (stream.is_legacy) return kCaptureUnsupported;
  if (stream.capture != nullptr) return kIllegalState;
  auto capture = std::make_unique<Capture>();
  capture->id = next_++;
  capture->mode = static_cast<CaptureMode>(mode);
  capture->thread = thread_number();
  capture->origin = &stream;
  capture->streams.emplace(&stream, stream.submitted);
  capture->graph = std::make_shared<Graph>();
  stream.capture = capture.get();
  captures_.emplace(capture->id, std::move(capture));
  count_ = captures_.size();
  return kSuccess;
}

void Captures::forget(Capture& capture) {
  for (const auto& [stream, number] : capture.streams) stream->capture = nullptr;
  captures_.erase(capture.id);
  count_ = captures_.size();
}

Result Captures::end(Stream& stream, void** graph) {
  Capture* const capture = stream.capture;
  if (graph == nullptr) return kInvalidValue;
  *graph = nullptr;
  if (capture == nullptr) return kIllegalState;
  if (capture->origin != &stream) return refuse(*capture, kCaptureUnmatched);
  if (capture->mode != CaptureMode::relaxed && capture->thread != thread_number()) return kCaptureWrongThread;
  const bool joined = std::ranges::all_of(capture->streams, [&](const auto& each) {
    const Stream& other = *each.first;
    return &other == &stream || other.submitted == each.second || stream.clock.covers(other.now());
  });
  const Result result = capture->invalid ? kCaptureInvalidated : joined ? kSuccess : kCaptureUnjoined;
  if (result == kSuccess) {
    *graph = capture->graph.get();
    graphs_.emplace(*graph, capture->graph);
  } else {
    for (const std::uint64_t address : capture->graph->memory) machine_.pools.give_up(address);
  }
  forget(*capture);
  return result;
}

Result Captures::status(const Stream& stream, int* status, std::uint64_t* id) const {
  if (status == nullptr) return kInvalidValue;
  if (stream.is_legacy && machine_.config.habits.capture_rules) {
    // Whether the legacy stream is part of a capture is a question that a capture of a blocking stream forbids.
    for (const auto& [number, capture] : captures_) {
      for (const auto& [member, from] : capture->streams) {
        if (member->device == stream.device && member->is_blocking()) return kCaptureImplicit;
      }
    }
  }
  *status = stream.capture == nullptr ? 0 : stream.capture->invalid ? 2 : 1;
  if (id != nullptr && stream.capture != nullptr) *id = stream.capture->id;
  return kSuccess;
}

Result Captures::exchange_mode(int* mode) const {
  if (mode == nullptr || !is_mode(*mode)) return kInvalidValue;
  CaptureMode& own = thread_mode();
  const int before = static_cast<int>(own);
  own = static_cast<CaptureMode>(*mode);
  *mode = before;
  return kSuccess;
}

// --- What is refused meanwhile -----------------------------------------------------------------------------------

// A capture whose stream was destroyed can never be ended.
void Captures::forget_orphans() {
  for (auto each = captures_.begin(); each != captures_.end();) {
    Capture& capture = *(each++)->second;
    if (capture.origin == nullptr) forget(capture);
  }
}

Result Captures::check_unsafe() {
  forget_orphans();
  const CaptureMode own = thread_mode();
  if (own == CaptureMode::relaxed) return kSuccess;
  Result result = kSuccess;
  for (const auto& [id, capture] : captures_) {
    const bool forbidden = capture->thread == thread_number()
                               ? capture->mode != CaptureMode::relaxed
                               : own == CaptureMode::global && capture->mode == CaptureMode::global;
    if (forbidden) result = refuse(*capture, kCaptureUnsupported);
  }
  return result;
}

Result check_captures(Machine& machine, const char* function) {
  if (!machine.captures.any() || !is_unsafe_in_capture(function)) return kSuccess;
  const std::lock_guard lock(machine.mutex);
  return machine.captures.check_unsafe();
}

Result Captures::check_wait(const Stream& stream) {
  return stream.capture == nullptr ? kSuccess : refuse(*stream.capture, kCaptureUnsupported);
}

Result Captures::check_wait(const Event& event) {
  if (event.capture == 0 || !machine_.config.habits.capture_rules) return kSuccess;
  const auto found = captures_.find(event.capture);
  if (found != captures_.end()) (void)refuse(*found->second, kCapturedEvent);
  return kCapturedEvent;
}

Result Captures::check_wait(const Device& device) {
  forget_orphans();
  Result result = kSuccess;
  for (const auto& [id, capture] : captures_) {
    if (capture->origin->device == &device) result = refuse(*capture, kCaptureUnsupported);
  }
  return result;
}

// --- Graphs ------------------------------------------------------------------------------------------------------

Result Captures::find_graph(void* handle, std::shared_ptr<Graph>* graph) const {
  const auto found = graphs_.find(handle);
  if (found == graphs_.end()) return kInvalidValue;
  *graph = found->second;
  return kSuccess;
}

Result Captures::instantiate(void* handle, void** executable) {
  std::shared_ptr<Graph> graph;
  if (executable == nullptr) return kInvalidValue;
  SIM_TRY(find_graph(handle, &graph));
  graph->users += 1;
  *executable = reinterpret_cast<void*>(0x6ULL << 44 | next_++ << 4);
  executables_.emplace(*executable, graph);
  return kSuccess;
}

Result Captures::launch(void* executable, Stream& stream) {
  const auto found = executables_.find(executable);
  if (found == executables_.end()) return kInvalidValue;
  for (const tensormem::host::Task& task : found->second->work) SIM_TRY(machine_.streams.submit(stream, task));
  for (const std::uint64_t address : found->second->memory) {
    if (Range* const range = machine_.memory.find_start(address); range != nullptr) range->ready = stream.now();
  }
  return kSuccess;
}

void Captures::release(Graph& graph) {
  if (--graph.users != 0) return;
  for (const std::uint64_t address : graph.memory) machine_.pools.give_up(address);
}

Result Captures::destroy_graph(void* handle) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(handle, &graph));
  graphs_.erase(handle);
  release(*graph);
  return kSuccess;
}

Result Captures::destroy_executable(void* handle) {
  const auto found = executables_.find(handle);
  if (found == executables_.end()) return kInvalidValue;
  const std::shared_ptr<Graph> graph = found->second;
  executables_.erase(found);
  release(*graph);
  return kSuccess;
}

}  // namespace simgpu

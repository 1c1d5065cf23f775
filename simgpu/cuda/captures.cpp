// CUDA functions about the capture of streams and the graphs that come of it.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

simgpu::Result with_stream(const char* function, StreamHandle handle, auto body) {
  return serve_in_context(function, {number(handle)}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    Stream* stream = nullptr;
    SIM_TRY(find_stream(machine, device, handle, &stream));
    return body(machine.captures, *stream);
  });
}

simgpu::Result with_graphs(const char* function, const void* handle, auto body) {
  return serve(function, {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    return body(machine.captures);
  });
}

}  // namespace

extern "C" {

Result cuStreamBeginCapture_v2(StreamHandle handle, int mode) {
  return with_stream("cuStreamBeginCapture", handle,
                     [&](Captures& captures, Stream& stream) { return captures.begin(stream, mode); });
}

Result cuStreamEndCapture(StreamHandle handle, GraphHandle* graph) {
  return with_stream("cuStreamEndCapture", handle,
                     [&](Captures& captures, Stream& stream) { return captures.end(stream, graph); });
}

Result cuStreamIsCapturing(StreamHandle handle, int* status) {
  return with_stream("cuStreamIsCapturing", handle,
                     [&](Captures& captures, Stream& stream) { return captures.status(stream, status, nullptr); });
}

Result cuStreamGetCaptureInfo(StreamHandle handle, int* status, std::uint64_t* id) {
  return with_stream("cuStreamGetCaptureInfo", handle,
                     [&](Captures& captures, Stream& stream) { return captures.status(stream, status, id); });
}

// What a capture depends on at this moment is not told: no nodes are simulated.
Result cuStreamGetCaptureInfo_v2(StreamHandle handle, int* status, std::uint64_t* id, GraphHandle* graph,
                                 const void** dependencies, std::size_t* count) {
  return with_stream("cuStreamGetCaptureInfo", handle, [&](Captures& captures, Stream& stream) {
    SIM_TRY(captures.status(stream, status, id));
    if (graph != nullptr) *graph = stream.capture == nullptr ? nullptr : stream.capture->graph.get();
    if (dependencies != nullptr) *dependencies = nullptr;
    if (count != nullptr) *count = 0;
    return simgpu::kSuccess;
  });
}

Result cuStreamGetCaptureInfo_v3(StreamHandle handle, int* status, std::uint64_t* id, GraphHandle* graph,
                                 const void** dependencies, const void** edges, std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count);
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  return with_graphs("cuThreadExchangeStreamCaptureMode", mode,
                     [&](Captures& captures) { return captures.exchange_mode(mode); });
}

Result cuGraphInstantiateWithFlags(GraphHandle* executable, GraphHandle graph, std::uint64_t) {
  return with_graphs("cuGraphInstantiate", graph,
                     [&](Captures& captures) { return captures.instantiate(graph, executable); });
}

Result cuGraphLaunch(GraphHandle executable, StreamHandle handle) {
  return with_stream("cuGraphLaunch", handle,
                     [&](Captures& captures, Stream& stream) { return captures.launch(executable, stream); });
}

Result cuGraphExecDestroy(GraphHandle executable) {
  return with_graphs("cuGraphExecDestroy", executable,
                     [&](Captures& captures) { return captures.destroy_executable(executable); });
}

Result cuGraphDestroy(GraphHandle graph) {
  return with_graphs("cuGraphDestroy", graph, [&](Captures& captures) { return captures.destroy_graph(graph); });
}

}  // extern "C"

}  // namespace tensormem::cuda

// HIP functions about the capture of streams and the graphs that come of it.
#include "hip/serve.hpp"

using namespace simgpu;
using namespace simgpu::hip;

namespace {

int with_graphs(const char* function, const void* handle, auto body) {
  return serve(function, {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    return body(machine.captures);
  });
}

}  // namespace

extern "C" {

int hipStreamBeginCapture(void* handle, int mode) {
  return serve_on_stream("hipStreamBeginCapture", handle,
                         [&](Machine& machine, Stream& stream) { return machine.captures.begin(stream, mode); });
}

int hipStreamEndCapture(void* handle, void** graph) {
  return serve_on_stream("hipStreamEndCapture", handle,
                         [&](Machine& machine, Stream& stream) { return machine.captures.end(stream, graph); });
}

int hipStreamIsCapturing(void* handle, int* status) {
  return serve_on_stream("hipStreamIsCapturing", handle, [&](Machine& machine, Stream& stream) {
    return machine.captures.status(stream, status, nullptr);
  });
}

int hipStreamGetCaptureInfo(void* handle, int* status, unsigned long long* id) {
  return serve_on_stream("hipStreamGetCaptureInfo", handle, [&](Machine& machine, Stream& stream) {
    std::uint64_t number_of_it = 0;
    SIM_TRY(machine.captures.status(stream, status, &number_of_it));
    if (id != nullptr) *id = number_of_it;
    return kSuccess;
  });
}

int hipThreadExchangeStreamCaptureMode(int* mode) {
  return with_graphs("hipThreadExchangeStreamCaptureMode", mode,
                     [&](Captures& captures) { return captures.exchange_mode(mode); });
}

int hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  return with_graphs("hipGraphInstantiate", graph,
                     [&](Captures& captures) { return captures.instantiate(graph, executable); });
}

int hipGraphInstantiate(void** executable, void* graph, void** error_node, char*, std::size_t) {
  if (error_node != nullptr) *error_node = nullptr;
  return hipGraphInstantiateWithFlags(executable, graph, 0);
}

int hipGraphLaunch(void* executable, void* handle) {
  return serve_on_stream("hipGraphLaunch", handle,
                         [&](Machine& machine, Stream& stream) { return machine.captures.launch(executable, stream); });
}

int hipGraphExecDestroy(void* executable) {
  return with_graphs("hipGraphExecDestroy", executable,
                     [&](Captures& captures) { return captures.destroy_executable(executable); });
}

int hipGraphDestroy(void* graph) {
  return with_graphs("hipGraphDestroy", graph, [&](Captures& captures) { return captures.destroy_graph(graph); });
}

}  // extern "C"

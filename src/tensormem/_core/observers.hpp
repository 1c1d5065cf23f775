// Owns: the crossing of stacks, log records and guard findings between native adaptors and Python.
#pragma once

#include "_core/hooks.hpp"
#include "resource/callback_log_sink.hpp"
#include "resource/csv_log_sink.hpp"
#include "resource/debug_guard_resource_adaptor.hpp"
#include "resource/logging_resource_adaptor.hpp"
#include "resource/memory_log_sink.hpp"
#include "resource/ring_log_sink.hpp"
#include "resource/tracking_resource_adaptor.hpp"

namespace tensormem {

// Gives a new reference, or null. Takes the GIL itself.
using CaptureFunction = PyObject* (*)();
using RecordFunction = void (*)(PyObject* context, const LogRecord* record, Status* status);
using FindingFunction = void (*)(PyObject* context, const GuardFinding* finding);

inline StackHooks stack_hooks(CaptureFunction capture) {
  if (capture == nullptr) return {};
  return {.capture = [capture]() -> void* { return interpreter_is_ending() ? nullptr : capture(); },
          .drop = &drop_python_object};
}

inline PyObject* stack_object(const CapturedStack& stack) { return static_cast<PyObject*>(stack.get()); }

inline LogSinkPtr callback_sink(PyObject* context, RecordFunction function) {
  return std::make_shared<CallbackLogSink>(
      [held = hold(context), function](const LogRecord& record) { return call_python(held, function, &record); });
}

inline DebugGuardHooks guard_hooks(CaptureFunction capture, PyObject* context, FindingFunction report) {
  return {.stacks = stack_hooks(capture), .report = [held = hold(context), report](const GuardFinding& finding) {
            if (!interpreter_is_ending()) report(held.get(), &finding);
          }};
}

}  // namespace tensormem

// Owns: the way from native code into Python functions and back: objects that native code holds, and exceptions as
// failures with a cause.
// A held object is dropped under the GIL, and not at all once the interpreter is ending.
#pragma once

#include <Python.h>

#include <memory>
#include <utility>

#include "_core/gil.hpp"
#include "base/status.hpp"
#include "resource/callback_memory_resource.hpp"
#include "resource/failure_callback_resource_adaptor.hpp"
#include "resource/foreign_resource_adaptor.hpp"
#include "resource/pressure_resource_adaptor.hpp"

namespace tensormem {

using HeldObject = std::shared_ptr<PyObject>;

inline HeldObject hold(PyObject* object) {
  Py_INCREF(object);
  return HeldObject(object, &drop_python_object);
}

// `exception` becomes the cause of a failure. A MemoryError is a shortage, so that whoever can help with one does.
inline Status python_failure(PyObject* exception, const char* what, std::uint64_t nbytes) {
  const bool shortage = PyErr_GivenExceptionMatches(exception, PyExc_MemoryError) != 0;
  Py_INCREF(exception);
  return Status::caused(
      {shortage ? Code::out_of_memory : Code::callback_failed, 0, what, {nbytes}, exception, &drop_python_object});
}

inline Status interpreter_gone() {
  return Status::fail(Code::callback_failed, "the interpreter is ending; no Python function can be called");
}

// Each takes the GIL itself and writes how it went.
using TakeFunction = void (*)(PyObject* context, const AllocRequest* request, std::uint64_t* address, Status* status);
using GiveFunction = void (*)(PyObject* context, std::uint64_t address, std::uint64_t nbytes, StreamId stream,
                              Status* status);
using RetryFunction = void (*)(PyObject* context, std::uint64_t nbytes, bool* again, Status* status);
using LevelFunction = void (*)(PyObject* context, int level, std::uint64_t used, Status* status);
using AllocateFunction = void (*)(PyObject* context, const AllocRequest* request, Block* block, Status* status);
using DeallocateFunction = void (*)(PyObject* context, const Block* block, StreamId stream, Status* status);
using ReapFunction = void (*)(PyObject* context, Status* status);

template <typename Function, typename... Arguments>
Status call_python(const HeldObject& context, Function function, Arguments... arguments) {
  if (interpreter_is_ending()) return interpreter_gone();
  Status status;
  function(context.get(), arguments..., &status);
  return status;
}

inline MemoryCallbacks memory_callbacks(PyObject* context, TakeFunction take, GiveFunction give) {
  const HeldObject held = hold(context);
  return {
      .take = [held, take](const AllocRequest& request,
                           std::uint64_t* address) { return call_python(held, take, &request, address); },
      .give_back = [held, give](std::uint64_t address, std::uint64_t nbytes,
                                StreamId stream) { return call_python(held, give, address, nbytes, stream); },
  };
}

inline FailureCallbackResourceAdaptor::Callback retry_callback(PyObject* context, RetryFunction retry) {
  return [held = hold(context), retry](std::uint64_t nbytes, bool* again) {
    return call_python(held, retry, nbytes, again);
  };
}

inline PressureResourceAdaptor::Callback level_callback(PyObject* context, LevelFunction changed) {
  return [held = hold(context), changed](PressureLevel level, std::uint64_t used) {
    return call_python(held, changed, static_cast<int>(level), used);
  };
}

inline ResourceHooks resource_hooks(PyObject* context, AllocateFunction allocate, DeallocateFunction deallocate,
                                    ReapFunction reap) {
  const HeldObject held = hold(context);
  return {
      .allocate = [held, allocate](const AllocRequest& request,
                                   Block* block) { return call_python(held, allocate, &request, block); },
      .deallocate = [held, deallocate](const Block& block,
                                       StreamId stream) { return call_python(held, deallocate, &block, stream); },
      .reap_pending = [held, reap] { return call_python(held, reap); },
  };
}

}  // namespace tensormem

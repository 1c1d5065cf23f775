// Owns: what waiting means in a Python process: whoever is about to block lets the GIL go, if it holds it; whoever
// waits hears signals, in the thread in which Python runs their handlers; and whether there still is an interpreter to
// come back to.
#pragma once

#include <Python.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "_core/thread_return.hpp"
#include "base/blocking.hpp"
#include "base/wait.hpp"

namespace tensormem {

// From then on a thread that asks for the GIL never gets it.
inline bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

inline void drop_python_object(void* object) {
  if (interpreter_is_ending()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(static_cast<PyObject*>(object));
  PyGILState_Release(state);
}

// What a handler raised is the cause of the failure, and is raised again as it is.
inline Status hear_signals() {
  if (::syscall(SYS_gettid) != ::getpid() || interpreter_is_ending()) return {};  // others hear nothing
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *kind = nullptr, *error = nullptr, *trace = nullptr;
  PyErr_Fetch(&kind, &error, &trace);  // also destructors wait, in the middle of an exception
  Status heard;
  if (PyErr_CheckSignals() != 0) {
    PyObject *raised_kind = nullptr, *raised = nullptr, *raised_trace = nullptr;
    PyErr_Fetch(&raised_kind, &raised, &raised_trace);
    PyErr_NormalizeException(&raised_kind, &raised, &raised_trace);
    if (raised_trace != nullptr) PyException_SetTraceback(raised, raised_trace);
    Py_XDECREF(raised_kind);
    Py_XDECREF(raised_trace);
    heard = Status::caused({Code::interrupted, 0, "a signal was heard", {}, raised, &drop_python_object});
  }
  PyErr_Restore(kind, error, trace);
  PyGILState_Release(state);
  return heard;
}

inline void install_gil_hooks() {
  install_blocking_hooks({
      .enter = []() -> void* { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; },
      .leave = [](void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); },
  });
  install_signal_ear(&hear_signals);
}

}  // namespace tensormem

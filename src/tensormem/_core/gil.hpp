// Owns: what a BlockingRegion means in a Python process: whoever is about to block lets the GIL go, if it holds it; and
// whether there still is an interpreter to come back to.
#pragma once

#include <Python.h>

#include "base/blocking.hpp"

namespace tensormem {

inline void install_gil_hooks() {
  install_blocking_hooks({
      .enter = []() -> void* { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; },
      .leave = [](void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); },
  });
}

// From then on a thread that asks for the GIL never gets it.
inline bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace tensormem

// Owns: what a BlockingRegion means in a Python process: whoever is about to block lets the GIL go, if it holds it.
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

}  // namespace tensormem

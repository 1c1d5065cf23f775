// Owns: a plan made without the GIL, watched by a Python function that takes it for a moment.
#pragma once

#include <Python.h>

#include "plan/planner.hpp"

namespace tensormem {

// Takes the GIL itself; says whether to go on.
using WatchFunction = bool (*)(PyObject* context, const PlanProgress* progress);

inline Status make_plan_watched(const PlanItems& items, const PlanOptions& options, PyObject* context,
                                WatchFunction function, PlanResult* result) {
  PyThreadState* const state = PyEval_SaveThread();
  Status made = make_plan(
      items, options, [=](const PlanProgress& progress) { return function(context, &progress); }, result);
  PyEval_RestoreThread(state);
  return made;
}

}  // namespace tensormem

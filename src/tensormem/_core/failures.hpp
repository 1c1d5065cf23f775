// Owns: the crossing from a native Status to a Python exception: one call, a null check when all is well.
// Must not know: which classes there are; errors.py builds the exception from the facts.
#pragma once

#include <Python.h>

#include <utility>

#include "base/status.hpp"

namespace tensormem {

// An error of ours that a Python function raised goes on as it is, and so does whatever a signal handler raised.
[[gnu::cold]] inline bool raise_cause(const Failure& failure, PyObject* errors) {
  if (failure.cause == nullptr) return false;
  auto* cause = static_cast<PyObject*>(failure.cause);
  PyObject* base = PyObject_GetAttrString(errors, "TensormemError");
  const bool ours = failure.code == Code::interrupted || (base != nullptr && PyObject_IsInstance(cause, base) == 1);
  Py_XDECREF(base);
  if (ours) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(cause)), cause);
  return ours;
}

[[gnu::cold, gnu::noinline]] inline int raise_failure(const Failure& failure) {
  PyObject* facts = PyTuple_New(Failure::kMaxFacts);
  if (facts == nullptr) return -1;
  for (int i = 0; i < Failure::kMaxFacts; ++i) {
    PyObject* fact = PyLong_FromUnsignedLongLong(failure.facts[static_cast<std::size_t>(i)]);
    if (fact == nullptr) {
      Py_DECREF(facts);
      return -1;
    }
    PyTuple_SET_ITEM(facts, i, fact);
  }
  PyObject* errors = PyImport_ImportModule("tensormem.errors");
  if (errors == nullptr) {
    Py_DECREF(facts);
    return -1;
  }
  if (raise_cause(failure, errors)) {
    Py_DECREF(errors);
    Py_DECREF(facts);
    return -1;
  }
  PyObject* error = PyObject_CallMethod(errors, "from_failure", "ssiN", class_name(failure.code), failure.what,
                                        static_cast<int>(failure.driver_code), facts);
  Py_DECREF(errors);
  if (error == nullptr) return -1;
  if (failure.cause != nullptr) PyException_SetCause(error, Py_NewRef(static_cast<PyObject*>(failure.cause)));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
  return -1;
}

// 0, or -1 with the exception set. Needs the GIL.
inline int check(Status status) {
  if (status.ok()) [[likely]]
    return 0;
  return raise_failure(status.failure());
}

}  // namespace tensormem

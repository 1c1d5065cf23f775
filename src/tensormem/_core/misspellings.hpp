// Owns: that a call with a misspelt keyword is told the nearest one, in every module of this package (the build
// includes
//   it first). Cython passes by here with every exception that leaves a function; a call that succeeds pays nothing.
// Must not know: what keywords there are, and what is said; that is `tensormem.misspellings`.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <frameobject.h>

namespace tensormem {

// The exception in flight, a `TypeError`, may get a better message; it stays the same exception.
inline void explain_misspelling(PyObject* subject) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyObject* const module = error == nullptr ? nullptr : PyImport_ImportModule("tensormem.misspellings");
  PyObject* const done = module == nullptr ? nullptr : PyObject_CallMethod(module, "explain", "OO", error, subject);
  if (done == nullptr) PyErr_Clear();  // the error itself is what matters
  Py_XDECREF(done);
  Py_XDECREF(module);
  PyErr_Restore(type, error, traceback);
}

// Cython keeps the frames that it shows by line alone, and modules of many files have many lines of one number: here
// the frame is always that of `function`, so that both the message and the traceback name the right one.
inline int leave_by_exception(PyFrameObject* frame, const char* function, const char* file, int line) {
  if (PyErr_Occurred() == PyExc_TypeError) {
    if (PyObject* const name = PyUnicode_FromString(function); name != nullptr) {
      explain_misspelling(name);
      Py_DECREF(name);
    }
  }
  PyCodeObject* const shown = PyFrame_GetCode(frame);
  const bool right = PyUnicode_CompareWithASCIIString(shown->co_name, function) == 0;
  Py_DECREF(shown);
  if (right) return PyTraceBack_Here(frame);
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyCodeObject* const code = PyCode_NewEmpty(file, function, line);
  PyObject* const globals = PyFrame_GetGlobals(frame);
  PyFrameObject* const own = code == nullptr ? nullptr : PyFrame_New(PyThreadState_Get(), code, globals, nullptr);
  PyErr_Restore(type, error, traceback);
  const int result = PyTraceBack_Here(own == nullptr ? frame : own);
  Py_XDECREF(globals);
  Py_XDECREF(code);
  Py_XDECREF(own);
  return result;
}

}  // namespace tensormem

// Cython writes this name in one function, whose arguments have these names.
#define PyTraceBack_Here(frame) ::tensormem::leave_by_exception((frame), funcname, filename, py_line)

// Owns: functions written in Python that explain a misspelt keyword. A call adds no frame, and nothing to a traceback.
//   Python 3.13 does this itself, for all functions. Must not know: which functions.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <cstddef>

#include "_core/misspellings.hpp"

namespace tensormem {

struct ExplainedFunction {
  PyObject_HEAD vectorcallfunc call;
  PyObject* function;
  PyObject* dict;
};

inline PyObject* explained_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* keywords) {
  PyObject* const function = reinterpret_cast<ExplainedFunction*>(self)->function;
  PyObject* const result = PyObject_Vectorcall(function, arguments, count, keywords);
  if (result == nullptr && keywords != nullptr && PyErr_ExceptionMatches(PyExc_TypeError))
    explain_misspelling(function);
  return result;
}

inline PyObject* explained_bind(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

inline PyObject* explained_text(PyObject* self) {
  return PyObject_Repr(reinterpret_cast<ExplainedFunction*>(self)->function);
}

inline int explained_visit(PyObject* self, visitproc visit, void* arg) {
  auto* const own = reinterpret_cast<ExplainedFunction*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(own->function);
  Py_VISIT(own->dict);
  return 0;
}

inline int explained_clear(PyObject* self) {
  auto* const own = reinterpret_cast<ExplainedFunction*>(self);
  Py_CLEAR(own->dict);
  return 0;  // the function stays: whoever still calls it finds it
}

inline void explained_end(PyObject* self) {
  auto* const own = reinterpret_cast<ExplainedFunction*>(self);
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(own->dict);
  Py_CLEAR(own->function);
  type->tp_free(self);
  Py_DECREF(type);
}

inline PyTypeObject* explained_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(ExplainedFunction, call), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(ExplainedFunction, dict), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  static PyGetSetDef attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                     {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(explained_bind)},
                                {Py_tp_repr, reinterpret_cast<void*>(explained_text)},
                                {Py_tp_traverse, reinterpret_cast<void*>(explained_visit)},
                                {Py_tp_clear, reinterpret_cast<void*>(explained_clear)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(explained_end)},
                                {Py_tp_members, members},
                                {Py_tp_getset, attributes},
                                {0, nullptr}};
  static PyType_Spec spec = {"tensormem._core.base.ExplainedFunction", sizeof(ExplainedFunction), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  static auto* const type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

inline PyObject* explained_class() { return Py_XNewRef(reinterpret_cast<PyObject*>(explained_type())); }

inline PyObject* make_explained(PyObject* function) {
  PyTypeObject* const type = explained_type();
  if (type == nullptr) return nullptr;
  auto* const made = PyObject_GC_New(ExplainedFunction, type);
  if (made == nullptr) return nullptr;
  made->call = explained_call;
  made->function = Py_NewRef(function);
  made->dict = nullptr;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(made));
  return reinterpret_cast<PyObject*>(made);
}

}  // namespace tensormem

// Owns: how often an object is constructed. A class whose objects only the core makes has no way in from Python: an
// object made around its maker would have nothing behind it. Every other object is constructed once: a second
// `__init__` would replace what its blocks, views and threads still use. Must not know: any class.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstring>
#include <unordered_map>

namespace tensormem {

inline std::unordered_map<const PyTypeObject*, const char*>& makers_by_type() {
  static std::unordered_map<const PyTypeObject*, const char*> makers;
  return makers;
}

inline PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
  const PyTypeObject* known = type;
  while (known->tp_base != nullptr && !makers_by_type().contains(known)) known = known->tp_base;
  const auto found = makers_by_type().find(known);
  PyErr_Format(PyExc_TypeError, "%s", found == makers_by_type().end() ? type->tp_name : found->second);
  return nullptr;
}

// Cython's own way to make an object does not pass here. Called while the module is loaded, under the import lock.
inline void only_the_core_makes(PyObject* type, const char* message) {
  auto* const known = reinterpret_cast<PyTypeObject*>(type);
  makers_by_type()[known] = message;
  known->tp_new = refuse_new;
  known->tp_vectorcall = nullptr;  // a shorter way, which would pass by `tp_new`
  PyType_Modified(known);
}

// A member of every object that owns something: whether its construction began. It stays begun when it fails, for an
// object may be half built by then.
class Construction {
 public:
  // True for the first who asks, whichever thread that is.
  bool begin() { return !begun_.exchange(true, std::memory_order_acq_rel); }

 private:
  std::atomic<bool> begun_{false};
};

// The first line of every `__init__`: raises `InvalidArgument` unless this is the first one.
inline int begin_construction(Construction& construction, PyObject* self) {
  if (construction.begin()) return 0;
  PyObject* const errors = PyImport_ImportModule("tensormem.errors");
  if (errors == nullptr) return -1;
  PyObject* const error = PyObject_GetAttrString(errors, "InvalidArgument");
  Py_DECREF(errors);
  if (error == nullptr) return -1;
  const char* const name = Py_TYPE(self)->tp_name;
  const char* const dot = std::strrchr(name, '.');
  PyErr_Format(error, "this %s exists already, and __init__ runs once; make a new one",
               dot == nullptr ? name : dot + 1);
  Py_DECREF(error);
  return -1;
}

}  // namespace tensormem

// Owns: closing the way from Python into a class whose objects only the core makes. An object that was made around its
// maker would have nothing behind it; with this there is none. Must not know: any class.
#pragma once

#include <Python.h>

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

}  // namespace tensormem

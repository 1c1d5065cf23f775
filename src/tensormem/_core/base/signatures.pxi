"""Owns: giving a compiled class what `inspect.signature` looks for. Must not know: where signatures are read from."""
from cpython.object cimport PyTypeObject


cdef extern from "Python.h":
    void PyType_Modified(PyTypeObject* type)


def offer_signature(type owner not None, signature):
    """Let `owner.__signature__` be what `signature`, a descriptor, gives. For the compiled classes of this package."""
    # The type is compiled, so its dictionary is reached directly.
    (<dict>(<PyTypeObject*>owner).tp_dict)["__signature__"] = signature
    PyType_Modified(<PyTypeObject*>owner)

"""Owns: public functions written in Python that explain a misspelt keyword. Must not know: which there are."""


cdef extern from "_core/explained_function.hpp" namespace "tensormem":
    object make_explained(object function)
    object explained_class()


ExplainedFunction = explained_class()


def explained_function(function):
    """`function`, which names the nearest keyword when a call misspells one. What else it has is the caller's to add."""
    return make_explained(function)

# Owns: how often an object is constructed, for the other modules of this package.
from libcpp cimport bool as cbool


cdef extern from "_core/construction.hpp" namespace "tensormem":
    # `message`, static text, says where they come from; it is what a `TypeError` says to whoever tries.
    void only_the_core_makes(object type, const char* message) except +MemoryError

    # A member of every object that owns something.
    cdef cppclass Construction:
        cbool begin()

    # The first line of every `__init__`: raises `InvalidArgument` unless this is the first one.
    int begin_construction(Construction& construction, object self) except -1

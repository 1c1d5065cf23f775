# Owns: closing the way from Python into a class whose objects only the core makes.
cdef extern from "_core/construction.hpp" namespace "tensormem":
    # `message`, static text, says where they come from; it is what a `TypeError` says to whoever tries.
    void only_the_core_makes(object type, const char* message) except +

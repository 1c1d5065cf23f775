# Owns: the one way in which a shortage of memory becomes an exception, for the other modules of this package.
from tensormem._core.native cimport Status, TagId


# Raises what `status` says. A shortage remembers `source`, the maker that was asked, so that its report can name every
# holder, and is written to the dump file if the environment names one. Never returns 0 for a status that failed.
cdef int refuse(object source, Status status, TagId tag) except -1
# The same for an exception that a maker written in Python raised; the caller raises it again.
cdef int note_shortage(object error, object source, TagId tag) except -1
# The text of a tag: "untagged" for none.
cdef str text_of_tag(TagId tag)

"""Owns: the one way in which a shortage of memory becomes an exception: every maker of memory raises it here.

A shortage remembers the maker that was asked and the tag, so that `error.report()` can say who holds what, and it is
written to the file that TENSORMEM_OOM_DUMP names.
"""
import os

from libcpp.string_view cimport string_view
from libcpp.utility cimport move

from tensormem._core.failures cimport check
from tensormem._core.native cimport Status, TagId, tag_text

from tensormem import errors

_SHORTAGES = (errors.OutOfMemory, errors.OutOfBudget, errors.OutOfPhysicalMemory)


cdef int refuse(object source, Status status, TagId tag) except -1:
    try:
        check(move(status))
    except _SHORTAGES as error:
        note_shortage(error, source, tag)
        raise
    return 0


cdef int note_shortage(object error, object source, TagId tag) except -1:
    if not isinstance(error, _SHORTAGES):
        return 0
    # The innermost maker has the facts; one that it serves adds nothing.
    first = error.explain_with(source, text_of_tag(tag))
    if first and "TENSORMEM_OOM_DUMP" in os.environ:
        _dump(error)
    return 0


def note(error, source, tag=None):
    """What makers written in Python call before they raise: remembers `source` and the tag, and writes the dump."""
    if isinstance(error, _SHORTAGES) and error.explain_with(source, "untagged" if tag is None else str(tag)):
        if "TENSORMEM_OOM_DUMP" in os.environ:
            _dump(error)


def _dump(error):
    # Nothing that goes wrong here may take the place of the error itself.
    import importlib
    import warnings

    from tensormem.config import get_config

    path = get_config().oom_dump
    if path == "off":
        return
    try:
        importlib.import_module("tensormem.reports.out_of_memory").dump(error.report(), path)
    except Exception as failure:
        warnings.warn(f"the report of an OutOfMemory could not be written to {path}: {failure}", RuntimeWarning,
                      stacklevel=3)


cdef str text_of_tag(TagId tag):
    cdef string_view text = tag_text(tag)
    return text.data()[:text.size()].decode()

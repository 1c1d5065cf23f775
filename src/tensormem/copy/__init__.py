"""Owns: copies of tensors between spaces and layouts.

Nothing moves by itself: `to`, `clone` and `copy_into` are the only doors. Reads from low to high: side_streams,
routes, transfer, fill. Must not know: how tensors are made or shown.
"""

from tensormem._core import TransferReport, copy_into
from tensormem._core import finish_streams_of as finish
from tensormem.copy.fill import fill
from tensormem.copy.transfer import clone, to
from tensormem.public_functions import explain_misspellings

__all__ = ["TransferReport", "clone", "copy_into", "fill", "finish", "to"]

explain_misspellings(globals())

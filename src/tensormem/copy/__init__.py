"""Owns: copies of tensors between spaces and layouts.

Nothing moves by itself: `to`, `clone` and `copy_into` are the only doors. Reads from low to high: in_flight, routes,
transfer. Must not know: how tensors are made or shown.
"""

from tensormem._core import TransferReport, copy_into
from tensormem.copy.in_flight import finish
from tensormem.copy.transfer import clone, to

__all__ = ["TransferReport", "clone", "copy_into", "finish", "to"]

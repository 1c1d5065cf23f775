"""Owns: loading another library when it is first needed, with advice when it is not there; and what a library of GPU
arrays asks of a resource. Must not know: what the library is used for.
"""

from importlib import import_module
from typing import Any

from tensormem import errors
from tensormem._core import current_tag
from tensormem.mr import DeviceMemoryResource

__all__ = ["check_device_accessible", "hook_tag", "load"]


def load(name: str, install: str) -> Any:
    """The module `name`, or `ModuleNotFoundError` that says what to install.

    >>> load("json", "nothing").dumps([1])
    '[1]'
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name.partition(".")[0]:
            raise
        text = f"this needs {name}, which is not installed; try: pip install {install}"
        raise ModuleNotFoundError(text, name=missing.name) from None


def hook_tag(given: str | None, otherwise: str) -> str:
    """The tag of what a library allocates through a hook: the one given, or the one in force, or the library's name.

    >>> hook_tag(None, "numpy"), hook_tag("weights", "numpy")
    ('numpy', 'weights')
    """
    return given if given is not None else current_tag() or otherwise


def check_device_accessible(mr: DeviceMemoryResource, library: str) -> None:
    """Refuse a resource whose memory no GPU can touch.

    >>> from tensormem.mr import HostMemoryResource
    >>> check_device_accessible(HostMemoryResource(), "CuPy")
    Traceback (most recent call last):
    tensormem.errors.InvalidArgument: invalid argument: CuPy needs memory that a GPU can touch, ...
    """
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"{library} takes a memory resource, not {type(mr).__name__}")
    if not mr.is_device_accessible:
        raise errors.InvalidArgument(f"{library} needs memory that a GPU can touch, and {mr!r} has none")

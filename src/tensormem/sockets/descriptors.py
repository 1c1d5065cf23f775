"""Owns: descriptors on their way to another process: closing those that stay here, and carrying them through
`multiprocessing`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from multiprocessing import context, util
from multiprocessing.reduction import DupFd
from typing import Protocol, TypeVar

from tensormem import errors

__all__ = ["Carried", "carry", "close_all", "duplicate", "with_carried"]

_T = TypeVar("_T")


class Carried(Protocol):
    """What `multiprocessing` makes of a descriptor."""

    def detach(self) -> int:
        """The descriptor, in the process that it came to."""


def close_all(descriptors: Iterable[int]) -> None:
    """Close every one of them."""
    for fd in descriptors:
        os.close(fd)


def duplicate(fd: int) -> int:
    """Another descriptor of the same file."""
    try:
        return os.dup(fd)
    except OSError as error:
        raise errors.from_system("dup", error) from None


def carry(*descriptors: int) -> list[Carried]:
    """What brings descriptors to another process as arguments. They are closed here when they have gone."""
    child = context.get_spawning_popen()
    if child is not None:
        # They are inherited when the child starts, which is later: it is the child's record that closes them.
        for fd in descriptors:
            util.Finalize(child, os.close, (fd,), exitpriority=0)
        return [DupFd(fd) for fd in descriptors]
    try:
        return [DupFd(fd) for fd in descriptors]
    finally:
        close_all(descriptors)


def with_carried(use: Callable[..., _T], *carried: Carried) -> _T:
    """Call `use` with the descriptors that came, which are closed afterwards."""
    descriptors: list[int] = []
    try:
        descriptors.extend(each.detach() for each in carried)
        return use(*descriptors)
    finally:
        close_all(descriptors)

"""Owns: asking what other packages bring, without loading the library that knows before somebody asks.

`importlib.metadata` brings in thirty modules, more than half of the time of a first use. Must not know: who asks.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["entry_points"]


def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
    """The entry points of a group, of all packages that are installed; those of one name if it is given.

    >>> entry_points(group="tensormem.drivers", name="no such driver")
    []
    """
    from importlib import metadata

    if name is None:
        return list(metadata.entry_points(group=group))
    return list(metadata.entry_points(group=group, name=name))

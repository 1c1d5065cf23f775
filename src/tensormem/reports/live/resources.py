"""Owns: the figures of every resource that Python holds, and which of them programs ask directly.

An adaptor has the figures of what it stands on; only resources that make blocks are added up, and of those only the
outermost, because a pool's upstream hands out what the pool cuts up.
Must not know: elastic pools, which are no resources.
"""

from __future__ import annotations

from typing import NamedTuple

from tensormem._core import BinningMemoryResource, DeviceMemoryResource, live_resources, space_of

__all__ = ["ResourceFigures", "look_at_resources"]


class ResourceFigures(NamedTuple):
    """One resource at one moment. What a resource of its kind does not know is None.

    >>> import tensormem as tm
    >>> pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    >>> block = pool.allocate("1MiB")
    >>> figures = [each for each in look_at_resources() if each.name == "PoolMemoryResource"][-1]
    >>> figures.used_bytes, figures.outermost, figures.space
    (1048576, True, 'main')
    """

    id: int
    """The number that it has in traces too."""
    below: int | None
    """The id of what it stands on."""
    name: str
    space: str
    makes_blocks: bool
    """Whether its figures are its own: an adaptor repeats those of what it stands on."""
    outermost: bool
    """Whether it counts in the totals: no other that makes blocks stands on it."""
    used_bytes: int
    used_blocks: int
    peak_bytes: int
    retired_bytes: int
    """Given back, and waiting for streams."""
    reserved_bytes: int
    """What it has taken from below or from the system."""
    charged_bytes: int
    """What limits count for it: its blocks; of an elastic resource, its pages."""
    free_bytes: int | None
    largest_free_bytes: int | None
    fragmentation: float | None
    limit_bytes: int | None
    pressure: str | None
    """The level of a `PressureResourceAdaptor`."""
    total_allocations: int
    total_bytes: int


def look_at_resources() -> list[ResourceFigures]:
    """The figures of every resource, oldest first. One that fails is left out."""
    living = live_resources()
    numbers = {id(mr): number for number, mr in living}
    stood_on = _stood_on(living)
    found = []
    for number, mr in living:
        try:
            found.append(_figures(number, mr, numbers, stood_on))
        except Exception:  # its driver was closed under it, or a user wrote it: one must not hide the others
            continue
    return found


def _figures(number: int, mr: DeviceMemoryResource, numbers: dict[int, int], stood_on: set[int]) -> ResourceFigures:
    counters = mr.counters
    makes_blocks = not _forwards(mr)
    free = _ask(mr, "total_free")
    return ResourceFigures(
        id=number,
        below=None if mr.upstream_mr is None else numbers.get(id(mr.upstream_mr)),
        name=type(mr).__name__,
        space=space_of(mr),
        makes_blocks=makes_blocks,
        outermost=makes_blocks and number not in stood_on,
        used_bytes=counters["current_bytes"],
        used_blocks=counters["current_count"],
        peak_bytes=counters["peak_bytes"],
        retired_bytes=counters["retired_bytes"],
        reserved_bytes=_reserved(mr, counters["current_bytes"]),
        charged_bytes=_ask(mr, "physical_bytes") or counters["current_bytes"],
        free_bytes=_ask(mr, "idle_bytes") if free is None else free,
        largest_free_bytes=_ask(mr, "largest_free"),
        fragmentation=getattr(mr, "fragmentation", None),
        limit_bytes=_ask(mr, "allocation_limit"),
        pressure=getattr(mr, "level", None),
        total_allocations=counters["total_count"],
        total_bytes=counters["total_bytes"],
    )


def _ask(mr: DeviceMemoryResource, name: str) -> int | None:
    value: int | None = getattr(mr, name, None)
    return value


def _reserved(mr: DeviceMemoryResource, used: int) -> int:
    for name in ("pool_size", "physical_bytes"):
        if (value := _ask(mr, name)) is not None:
            return value
    return used


def _forwards(mr: DeviceMemoryResource) -> bool:
    """Whether its counters are those of what it stands on: an adaptor of ours, or one written in Python."""
    kind = next(each for each in type(mr).__mro__ if each.__module__.startswith("tensormem._core"))
    return kind is DeviceMemoryResource or kind.__name__.endswith("ResourceAdaptor")


def _stood_on(living: list[tuple[int, DeviceMemoryResource]]) -> set[int]:
    """The numbers of those below one that makes blocks."""
    numbers = {id(mr): number for number, mr in living}
    found: set[int] = set()
    for _, mr in living:
        below = [] if _forwards(mr) else [mr.upstream_mr]
        if isinstance(mr, BinningMemoryResource):
            below += mr.bin_mrs
        for each in below:
            while each is not None:
                if id(each) in numbers:
                    found.add(numbers[id(each)])
                each = each.upstream_mr
    return found

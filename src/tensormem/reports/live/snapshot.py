"""Owns: `Snapshot`, the whole picture of one moment, with its sums, and its JSON whose names stay.

Bounded, unless asked otherwise: of each kind at most `MOST` are listed and the rest is counted, so that it has a
largest size.
Must not know: how it travels.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tensormem._core import live_resources
from tensormem.reports.live.pools import (
    BudgetFigures,
    PoolFigures,
    TenantFigures,
    devices_of_pools,
    look_at_budgets,
    look_at_pools,
    look_at_tenants,
)
from tensormem.reports.live.pressure import Pressure, measure_pressure
from tensormem.reports.live.resources import ResourceFigures, look_at_resources
from tensormem.spaces import LogicalMemorySpace

__all__ = ["MOST", "Snapshot", "SpaceFigures", "Totals", "memory_stats", "take_snapshot"]

SCHEMA = "tensormem.top"
VERSION = 1
MOST = 200

_Figures = TypeVar("_Figures", ResourceFigures, PoolFigures, TenantFigures, BudgetFigures)


class Totals(NamedTuple):
    """Everything of the process added up.

    >>> take_snapshot().totals.used_bytes >= 0
    True
    """

    used_bytes: int
    used_blocks: int
    retired_bytes: int
    reserved_bytes: int
    """What was really taken from the system: by the resources at the bottom, and by elastic pools."""
    charged_bytes: int
    """What limits count: the blocks of resources, and the pages of elastic pools, caches and buffers."""
    total_allocations: int
    total_bytes: int
    resident_bytes: int | None
    """Main memory of the whole process, as the kernel counts it."""


class SpaceFigures(NamedTuple):
    """One memory space.

    >>> import tensormem as tm
    >>> block = tm.mr.HostMemoryResource().allocate(1000)
    >>> "main" in [space.name for space in take_snapshot().spaces]
    True
    """

    name: str
    used_bytes: int
    reserved_bytes: int
    charged_bytes: int
    device_free_bytes: int | None
    device_total_bytes: int | None


class Snapshot(NamedTuple):
    """The memory of this process at one moment.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> block = mr.allocate("1MiB")
    >>> [each.used_bytes for each in take_snapshot().resources][-1]
    1048576
    """

    time: float
    """Seconds since 1970."""
    totals: Totals
    pressure: Pressure
    spaces: tuple[SpaceFigures, ...]
    resources: tuple[ResourceFigures, ...]
    pools: tuple[PoolFigures, ...]
    tenants: tuple[TenantFigures, ...]
    budgets: tuple[BudgetFigures, ...]
    left_out: dict[str, int]
    """How many of each kind are not listed."""

    def as_json(self) -> dict[str, Any]:
        """Raw values with a schema and a version; see the reference page "What top says"."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "pid": os.getpid(),
            "command": command_line(),
            "time": self.time,
            "totals": self.totals._asdict(),
            "pressure": self.pressure._asdict(),
            **{kind: [each._asdict() for each in getattr(self, kind)] for kind in _LISTS},
            "left_out": self.left_out,
        }


_LISTS = ("spaces", "resources", "pools", "tenants", "budgets")


def take_snapshot(most: int | None = MOST) -> Snapshot:
    """What every resource, pool and tenant of this process has now, of each kind the `most` largest. Everybody goes on
    meanwhile: figures of different resources may be some microseconds apart.
    """
    resources, pools = look_at_resources(), look_at_pools()
    left_out: dict[str, int] = {}
    kept = sys.maxsize if most is None else most
    return Snapshot(
        time=time.time(),
        totals=_totals(resources, pools),
        pressure=measure_pressure(each.pressure for each in resources),
        spaces=_spaces(resources, pools),
        resources=_shorten("resources", resources, kept, left_out, lambda each: each.used_bytes),
        pools=_shorten("pools", pools, kept, left_out, lambda each: each.reserved_bytes),
        tenants=_shorten("tenants", look_at_tenants(), kept, left_out, lambda each: each.used_bytes),
        budgets=_shorten("budgets", look_at_budgets(), kept, left_out, lambda each: each.used_bytes),
        left_out=left_out,
    )


def memory_stats() -> dict[str, int]:
    """Everything that this process made and has not freed, added up, each byte once; see `tensormem.memory_stats`.

    >>> import tensormem as tm
    >>> before = memory_stats()["current_bytes"]
    >>> frame = tm.zeros(1000, "uint8", memory="shm")
    >>> memory_stats()["current_bytes"] - before
    1000
    """
    totals = _totals(look_at_resources(), look_at_pools())
    return {
        "current_bytes": totals.used_bytes,
        "current_count": totals.used_blocks,
        "retired_bytes": totals.retired_bytes,
        "reserved_bytes": totals.reserved_bytes,
        "charged_bytes": totals.charged_bytes,
        "total_bytes": totals.total_bytes,
        "total_count": totals.total_allocations,
    }


def _shorten(
    kind: str, figures: list[_Figures], most: int, left_out: dict[str, int], weight: Callable[[_Figures], int]
) -> tuple[_Figures, ...]:
    """The largest, in their old order. What a listed resource stands on may be missing."""
    left_out[kind] = max(0, len(figures) - most)
    if not left_out[kind]:
        return tuple(figures)
    kept = {id(each) for each in sorted(figures, key=weight, reverse=True)[:most]}
    return tuple(each for each in figures if id(each) in kept)


def _totals(resources: Sequence[ResourceFigures], pools: Sequence[PoolFigures]) -> Totals:
    counted, bottom = _counted(resources, pools), _bottom(resources, pools)
    return Totals(
        used_bytes=sum(each.used_bytes for each in counted),
        used_blocks=sum(each.used_blocks for each in counted),
        retired_bytes=sum(each.retired_bytes for each in resources if each.outermost),
        reserved_bytes=sum(each.reserved_bytes for each in bottom),
        charged_bytes=sum(map(_charged, counted)),
        total_allocations=sum(each.total_allocations or 0 for each in counted),
        total_bytes=sum(each.total_bytes for each in resources if each.outermost),
        resident_bytes=_resident(),
    )


def _counted(resources: Sequence[ResourceFigures], pools: Sequence[PoolFigures]) -> list[ResourceFigures | PoolFigures]:
    """Those that programs ask."""
    return [*(each for each in resources if each.outermost), *pools]


def _charged(figures: ResourceFigures | PoolFigures) -> int:
    return figures.charged_bytes if isinstance(figures, ResourceFigures) else figures.reserved_bytes


def _bottom(resources: Sequence[ResourceFigures], pools: Sequence[PoolFigures]) -> list[ResourceFigures | PoolFigures]:
    """Those that ask the system."""
    return [*(each for each in resources if each.below is None), *pools]


def _spaces(resources: Sequence[ResourceFigures], pools: Sequence[PoolFigures]) -> tuple[SpaceFigures, ...]:
    rooms = _device_rooms()
    counted, bottom = _counted(resources, pools), _bottom(resources, pools)
    return tuple(
        SpaceFigures(
            name,
            sum(each.used_bytes for each in counted if each.space == name),
            sum(each.reserved_bytes for each in bottom if each.space == name),
            sum(_charged(each) for each in counted if each.space == name),
            *rooms.get(name, (None, None)),
        )
        for name in sorted({each.space for each in bottom})
    )


def _device_rooms() -> dict[str, tuple[int, int]]:
    """What is free on the devices of living resources and pools, and how much they have; main memory has host's."""
    rooms: dict[str, tuple[int, int]] = {}
    for driver, device in [*((mr.driver, mr.device_ordinal) for _, mr in live_resources()), *devices_of_pools()]:
        space = str(LogicalMemorySpace.parse(driver))
        if space not in rooms and driver.name != "abstract":  # a replay's memory takes no room
            try:
                rooms[space] = driver.memory_info(device)
            except Exception:  # a driver that has trouble must not hide everything else
                continue
    return rooms


def _resident() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def command_line() -> str:
    """How this process was started, in at most 200 characters without control characters."""
    text = " ".join(sys.orig_argv) if sys.orig_argv else sys.executable
    return "".join(each if each.isprintable() else "?" for each in text)[:200]

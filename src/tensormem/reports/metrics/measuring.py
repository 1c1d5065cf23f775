"""Owns: the values of all metrics at one moment, out of a snapshot.

Counters never fall: what a resource had counted when it was last seen stays when it goes. Series are bounded: of
tenants and tags the largest are told apart, the rest is one series called "other".
Must not know: who asks, and in which format.
"""

from __future__ import annotations

import gc
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tensormem._core import DeviceBlock, space_of
from tensormem.errors import InvalidArgument
from tensormem.reports.live import PoolFigures, ResourceFigures, Snapshot, take_snapshot

__all__ = ["Meter", "Sample"]

_LEVELS = {"normal": 0, "warn": 1, "critical": 2}
_OTHER = "other"
_MOST_TENANTS = 100


class Sample(NamedTuple):
    """One value of one metric, with its labels in the order that the metric names them.

    >>> Sample("space_used_bytes", ("main",), 64).value
    64
    """

    name: str
    labels: tuple[str, ...]
    value: float


class Meter:
    """Measures this process. With `tags=N` also by tag, for the N that hold most: that looks at every object
    that Python knows and holds the interpreter for milliseconds in a large program, so it is not done unless asked for.

    >>> import tensormem as tm
    >>> block = tm.mr.HostMemoryResource().allocate("1MiB")
    >>> used = [each for each in Meter().samples() if each.name == "resource_used_bytes"]
    >>> sum(each.value for each in used if each.labels == ("HostMemoryResource", "main")) >= 2**20
    True
    """

    def __init__(self, *, tags: int = 0) -> None:
        if not 0 <= tags <= 1000:
            raise InvalidArgument(f"tags is how many to tell apart, from 0 to 1000, not {tags!r:.40}")
        self._tags = tags
        self._counters = _Counters()

    def samples(self) -> list[Sample]:
        """Every value of this moment."""
        snapshot = take_snapshot(most=None)
        found = [*_of_spaces(snapshot), *_of_resources(snapshot), *_of_pools(snapshot), *_of_tenants(snapshot)]
        found += _of_budgets(snapshot)
        if snapshot.pressure.level is not None:
            found.append(Sample("pressure_level", (), _LEVELS[snapshot.pressure.level]))
        if self._tags:
            found += _of_tags(self._tags)
        return found + self._counters.count(snapshot)


class _Counters:
    """Totals of those that live, and of those that were seen before they went."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gone: defaultdict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
        self._seen: dict[tuple[str, tuple[str, ...], str], int] = {}

    def count(self, snapshot: Snapshot) -> list[Sample]:
        now = dict(_countings(snapshot))
        with self._lock:
            for (name, labels, who), value in self._seen.items():
                if (name, labels, who) not in now:
                    self._gone[name, labels] += value
            self._seen = now
            totals = self._gone.copy()
        for (name, labels, _), value in now.items():
            totals[name, labels] += value
        return [Sample(name, labels, value) for (name, labels), value in totals.items()]


def _countings(snapshot: Snapshot) -> Iterator[tuple[tuple[str, tuple[str, ...], str], int]]:
    for each in _makers(snapshot):
        labels, who = (each.name, each.space), f"{each.id}"
        yield ("resource_allocations_total", labels, who), each.total_allocations
        yield ("resource_allocated_bytes_total", labels, who), each.total_bytes
    for tenant in snapshot.tenants[:_MOST_TENANTS]:
        yield ("tenant_refusals_total", (tenant.name,), f"{tenant.pool}/{tenant.name}"), tenant.refusals


def _makers(snapshot: Snapshot) -> list[ResourceFigures]:
    """Without adaptors, which repeat the figures of what they stand on."""
    return [each for each in snapshot.resources if each.makes_blocks]


def _of_spaces(snapshot: Snapshot) -> Iterator[Sample]:
    for space in snapshot.spaces:
        yield Sample("space_used_bytes", (space.name,), space.used_bytes)
        yield Sample("space_reserved_bytes", (space.name,), space.reserved_bytes)
        yield Sample("space_charged_bytes", (space.name,), space.charged_bytes)


def _of_resources(snapshot: Snapshot) -> Iterator[Sample]:
    groups: defaultdict[tuple[str, str], list[ResourceFigures]] = defaultdict(list)
    for each in _makers(snapshot):
        groups[each.name, each.space].append(each)
    for labels, group in groups.items():
        yield Sample("resource_used_bytes", labels, sum(each.used_bytes for each in group))
        yield Sample("resource_reserved_bytes", labels, sum(each.reserved_bytes for each in group))
        yield Sample("resource_peak_bytes", labels, max(each.peak_bytes for each in group))
        yield Sample("resource_retired_bytes", labels, sum(each.retired_bytes for each in group))
        yield Sample("resource_blocks", labels, sum(each.used_blocks for each in group))
        shares = [each.fragmentation for each in group if each.fragmentation is not None]
        if shares:
            yield Sample("resource_fragmentation_ratio", labels, max(shares))
    limits: defaultdict[tuple[str, str], int] = defaultdict(int)
    for each in snapshot.resources:
        if each.limit_bytes is not None:
            limits[each.name, each.space] += each.limit_bytes
    yield from (Sample("resource_limit_bytes", labels, limit) for labels, limit in limits.items())


def _of_pools(snapshot: Snapshot) -> Iterator[Sample]:
    groups: defaultdict[tuple[str, str], list[PoolFigures]] = defaultdict(list)
    for each in snapshot.pools:
        groups[each.name.partition(" of ")[0], each.space].append(each)  # tenants have metrics of their own
    for labels, group in groups.items():
        yield Sample("pool_used_bytes", labels, sum(each.used_bytes for each in group))
        yield Sample("pool_reserved_bytes", labels, sum(each.reserved_bytes for each in group))
        yield Sample("pool_fragmentation_ratio", labels, max(each.fragmentation for each in group))


def _of_tenants(snapshot: Snapshot) -> Iterator[Sample]:
    totals: defaultdict[tuple[str, str], int] = defaultdict(int)
    for place, tenant in enumerate(sorted(snapshot.tenants, key=lambda each: -each.used_bytes)):
        name = tenant.name if place < _MOST_TENANTS else _OTHER
        totals["tenant_used_bytes", name] += tenant.used_bytes
        totals["tenant_guaranteed_bytes", name] += tenant.guaranteed_bytes
        if tenant.maximum_bytes is not None:
            totals["tenant_maximum_bytes", name] += tenant.maximum_bytes
    yield from (Sample(name, (tenant_name,), value) for (name, tenant_name), value in totals.items())


def _of_budgets(snapshot: Snapshot) -> Iterator[Sample]:
    for name in {budget.name for budget in snapshot.budgets}:
        alike = [budget for budget in snapshot.budgets if budget.name == name]
        yield Sample("budget_used_bytes", (name,), sum(budget.used_bytes for budget in alike))
        yield Sample("budget_limit_bytes", (name,), sum(budget.limit_bytes for budget in alike))


def _of_tags(most: int) -> Iterator[Sample]:
    totals: defaultdict[tuple[str, str], int] = defaultdict(int)
    for block in gc.get_objects():
        # One that is being made has no generation yet.
        if type(block) is DeviceBlock and block.generation and block.state == "live":
            totals[block.tag, space_of(block.mr)] += block.nbytes
    ordered = sorted(totals.items(), key=lambda each: -each[1])
    yield from (Sample("tag_used_bytes", labels, nbytes) for labels, nbytes in ordered[:most])
    others: defaultdict[str, int] = defaultdict(int)
    for (_, space), nbytes in ordered[most:]:
        others[space] += nbytes
    yield from (Sample("tag_used_bytes", (_OTHER, space), nbytes) for space, nbytes in others.items())

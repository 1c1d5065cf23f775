"""Owns: how fast things go: samples of counters over the last two minutes, so that whoever looks for the first time
sees rates and a history at once. Must not know: who takes the samples, or when.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tensormem.reports.live.snapshot import Snapshot

__all__ = ["Moment", "Rate", "RateHistory"]

_KEPT = 120


class Rate(NamedTuple):
    """How much was allocated in a second.

    >>> Rate(2.0, 4096.0).bytes_per_second
    4096.0
    """

    allocations_per_second: float
    bytes_per_second: float


class Moment(NamedTuple):
    """A point of the past, for a curve.

    >>> Moment(1.0, 10, 20, 0.0, 0.0)._fields[:3]
    ('time', 'used_bytes', 'reserved_bytes')
    """

    time: float
    used_bytes: int
    reserved_bytes: int
    allocations_per_second: float
    bytes_per_second: float


_Counts = dict[str, tuple[int, int]]  # allocations and bytes, of every resource and pool by its kind and id


class RateHistory:
    """Rates between samples, and the last two minutes of them.

    >>> import tensormem as tm
    >>> from tensormem.reports.live import take_snapshot
    >>> history, mr = RateHistory(), tm.mr.HostMemoryResource()
    >>> history.add(take_snapshot(), 0.0)
    >>> block = mr.allocate(1000)
    >>> history.add(take_snapshot(), 2.0)
    >>> history.total.allocations_per_second, history.total.bytes_per_second
    (0.5, 500.0)
    """

    def __init__(self) -> None:
        self.moments: deque[Moment] = deque(maxlen=_KEPT)
        self.total = Rate(0.0, 0.0)
        self._rates: dict[str, Rate] = {}
        self._counts: _Counts = {}
        self._at: float | None = None

    def add(self, snapshot: Snapshot, now: float) -> None:
        """One more sample, taken at `now` seconds by a clock that never goes back."""
        counts: _Counts = {f"r{each.id}": (each.total_allocations, each.total_bytes) for each in snapshot.resources}
        counts |= {f"p{each.id}": (each.total_allocations or 0, 0) for each in snapshot.pools}
        seconds = 0.0 if self._at is None else now - self._at
        self._rates = {name: self._rate(name, count, seconds) for name, count in counts.items()}
        counted = [f"r{each.id}" for each in snapshot.resources if each.outermost]
        counted += [f"p{each.id}" for each in snapshot.pools]
        self.total = Rate(
            sum(self._rates[name].allocations_per_second for name in counted),
            sum(self._rates[name].bytes_per_second for name in counted),
        )
        self._counts, self._at = counts, now
        totals = snapshot.totals
        self.moments.append(Moment(snapshot.time, totals.used_bytes, totals.reserved_bytes, *self.total))

    def of_resource(self, number: int) -> Rate:
        """The rate of one resource between the last two samples."""
        return self._rates.get(f"r{number}", Rate(0.0, 0.0))

    def _rate(self, name: str, count: tuple[int, int], seconds: float) -> Rate:
        if seconds <= 0:
            return Rate(0.0, 0.0)
        before = self._counts.get(name, (0, 0))
        return Rate(max(0, count[0] - before[0]) / seconds, max(0, count[1] - before[1]) / seconds)

"""Owns: the order of events: when requests come and go, as a circle that every node enters at a place of its own.

Must not know: whether a request is let in.
"""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from fleet.requests import Workload


@dataclass(frozen=True)
class Schedule:
    """Comings and goings by time, twice around, so that a walk of one round from any place needs no modulo.

    Whoever goes before it came (the round began in the middle of it) was never let in, and takes nothing away.
    """

    request: NDArray[numpy.int64]
    comes: NDArray[numpy.bool_]
    gap: NDArray[numpy.float64]
    """Seconds until the next event."""
    period: float

    @property
    def events(self) -> int:
        """How many there are in one round."""
        return len(self.request) // 2


def make_schedule(workload: Workload) -> Schedule:
    """The circle of a workload. A request that lasts longer than the whole trace is refused."""
    count = len(workload)
    period = float(workload.arrivals[-1]) * (1 + 1 / count) + 1e-3
    if float(workload.seconds.max()) >= period:
        raise ValueError(f"a request lasts {workload.seconds.max():.1f} s, and the trace {period:.1f} s")
    times = numpy.concatenate([workload.arrivals, (workload.arrivals + workload.seconds) % period])
    comes = numpy.arange(2 * count) < count
    order = numpy.lexsort((comes, times))  # who goes makes room for who comes at the same moment
    times, comes = times[order], comes[order]
    gap = numpy.diff(times, append=times[0] + period)
    request = (order % count).astype(numpy.int64)
    return Schedule(numpy.tile(request, 2), numpy.tile(comes, 2), numpy.tile(gap, 2), period)

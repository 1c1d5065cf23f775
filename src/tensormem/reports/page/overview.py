"""Owns: the usage of a whole trace in a few hundred points: the most and the least between each and the next, so that a
spike is seen however short it was. Cheap for recordings of any size, which tell it themselves.

Must not know: what shows it.
"""

from __future__ import annotations

from typing import NamedTuple

from tensormem.trace import Trace
from tensormem.trace.extremes import Extremes, extremes_of

_MOST_POINTS = 2_000


class Overview(NamedTuple):
    """What the program had out, over all resources: stretch by stretch the most, when that was, and the least.

    >>> max(Overview([0, 5], [16, 24], [16, 8]).highest)
    24
    """

    times_ns: list[int]
    highest: list[int]
    lowest: list[int]

    @property
    def peak_ns(self) -> int:
        """When the most was out, the first time."""
        return max(zip(self.highest, (-time for time in self.times_ns), strict=True), default=(0, 0))[1] * -1


def overview_of(trace: Trace, *, most: int = _MOST_POINTS) -> Overview:
    """At most so many points of the trace.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> overview_of(tm.trace.open(path)).highest
    [16, 24, 8, 0]
    """
    stretches = extremes_of(trace)
    step = max(1, -(-len(stretches) // most))
    groups = [stretches[at : at + step] for at in range(0, len(stretches), step)]
    tops = [max(group, key=_highest) for group in groups]
    return Overview(
        [top.highest_ns for top in tops],
        [max(top.highest, 0) for top in tops],
        [max(min(stretch.lowest for stretch in group), 0) for group in groups],
    )


def _highest(stretch: Extremes) -> int:
    return stretch.highest

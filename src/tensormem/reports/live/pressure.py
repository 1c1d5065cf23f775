"""Owns: how short of memory this process and its machine are: the worst level of a `PressureResourceAdaptor`, and what
the kernel says about stalls. Must not know: who watches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Pressure", "measure_pressure"]

_LEVELS = ("normal", "warn", "critical")


class Pressure(NamedTuple):
    """How short memory is.

    >>> measure_pressure(["normal", None, "warn"]).level
    'warn'
    """

    level: str | None
    """The worst level of a `PressureResourceAdaptor`; None where nobody stands watch."""
    stalled_percent: float | None
    """The share of the last ten seconds in which something on this machine waited for memory; None where the kernel
    does not say."""


def measure_pressure(levels: Iterable[str | None]) -> Pressure:
    """The worst of the levels, and the kernel's word."""
    known = [level for level in levels if level in _LEVELS]
    return Pressure(max(known, key=_LEVELS.index, default=None), _stalled())


def _stalled() -> float | None:
    try:
        with open("/proc/pressure/memory", encoding="ascii") as file:
            fields = dict(field.split("=") for field in file.readline().split()[1:])
        return float(fields["avg10"])
    except (OSError, KeyError, ValueError):
        return None

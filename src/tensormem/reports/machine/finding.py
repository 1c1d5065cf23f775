"""Owns: what one probe found out, as plain data with a JSON form.

Must not know: how anything is probed or drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tensormem.units import format_size


class Status(StrEnum):
    """How something is here. Only `degraded` calls for action: a machine may well lack what is `missing`.

    >>> Status("degraded") is Status.DEGRADED
    True
    """

    WORKS = "works"
    DEGRADED = "degraded"
    MISSING = "missing"


class Area(StrEnum):
    """What a finding is about.

    >>> [str(area) for area in Area]
    ['driver', 'memory', 'limit', 'library', 'setting']
    """

    DRIVER = "driver"
    MEMORY = "memory"
    LIMIT = "limit"
    LIBRARY = "library"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of one probe. `value` is raw, in `unit` ("bytes" or ""); `command` is one line to type, or "".

    >>> Outcome(Status.WORKS, 2**21, unit="bytes").value_text
    '2 MiB'
    """

    status: Status
    value: int | str = ""
    reason: str = ""
    advice: str = ""
    command: str = ""
    unit: str = ""

    @property
    def value_text(self) -> str:
        """The value as people read it."""
        if isinstance(self.value, str):
            return self.value
        return format_size(self.value) if self.unit == "bytes" else f"{self.value:,}"


def works(value: int | str, reason: str, *, unit: str = "") -> Outcome:
    """It works, and this is what is known about it."""
    return Outcome(Status.WORKS, value, reason, unit=unit)


def degraded(value: int | str, reason: str, advice: str, command: str = "", unit: str = "") -> Outcome:
    """It should work here, and does not or not fully."""
    return Outcome(Status.DEGRADED, value, reason, advice, command, unit)


def missing(value: int | str, reason: str, advice: str = "", command: str = "") -> Outcome:
    """It is not here, and need not be."""
    return Outcome(Status.MISSING, value, reason, advice, command)


@dataclass(frozen=True, slots=True)
class Finding:
    """An outcome with its name. Names are stable: programs may look for them.

    >>> Finding("memlock", Area.LIMIT, Outcome(Status.WORKS, 8388608, unit="bytes")).as_json()["value"]
    8388608
    """

    name: str
    area: Area
    outcome: Outcome

    def as_json(self) -> dict[str, int | str]:
        """Raw values under stable keys."""
        return {
            "name": self.name,
            "area": str(self.area),
            "status": str(self.outcome.status),
            "value": self.outcome.value,
            "unit": self.outcome.unit,
            "reason": self.outcome.reason,
            "advice": self.outcome.advice,
            "command": self.outcome.command,
        }

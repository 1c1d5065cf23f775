"""Owns: finding a driver by name, and saying why one is not there.

Must not know: what a driver is used for.
"""

from typing import NamedTuple

from tensormem import errors
from tensormem._core import Driver, host_driver

__all__ = ["ProbeResult", "get", "host", "probe"]


class ProbeResult(NamedTuple):
    """Whether a driver works here, and if not, why and what to do.

    >>> from tensormem import drivers
    >>> [result.name for result in drivers.probe() if result.works]
    ['host']
    """

    name: str
    works: bool
    reason: str
    advice: str


def host() -> Driver:
    """The driver of main memory; it always works.

    >>> from tensormem import drivers
    >>> drivers.host().name
    'host'
    """
    return host_driver()


def get(name: str) -> Driver:
    """The driver called `name`, or `DriverUnavailable` with the reason."""
    if name == "host":
        return host()
    for result in probe():
        if result.name == name:
            raise errors.DriverUnavailable(name, result.reason)
    known = ", ".join(result.name for result in probe())
    raise errors.DriverUnavailable(name, f"there is no such driver; known are {known}")


def probe() -> list[ProbeResult]:
    """Every known driver, with works or why not."""
    return [ProbeResult("host", True, "main memory is always there", "")]

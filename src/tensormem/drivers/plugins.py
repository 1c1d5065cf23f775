"""Owns: drivers that other packages bring: registered by hand, or found by the entry points of `tensormem.drivers`.

A package's entry point names a function that gives a `Driver`, made with `driver_from_capsule` from a native one.
Must not know: any driver of ours.
"""

from __future__ import annotations

from tensormem import errors
from tensormem._core import Driver, driver_from_capsule
from tensormem.entry_points import entry_points
from tensormem.spaces.words import WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["driver_from_capsule", "find", "opened", "register_driver", "unregister_driver"]

GROUP = "tensormem.drivers"
_opened: dict[str, Driver] = {}


def register_driver(name: str, open_driver: Callable[[], Driver]) -> Driver:
    """Open a driver of yours and make it known as `name`; gives the driver.

    >>> from tensormem import drivers
    >>> drivers.register_driver("mine", drivers.host) is drivers.get("mine")
    True
    >>> drivers.unregister_driver("mine")
    """
    if not str(name).isidentifier() or name in WORDS:
        raise errors.InvalidArgument(f"{name!r:.40} cannot be the name of another driver")
    if name in _opened:
        raise errors.InvalidArgument(f"{name} is already registered; unregister it first")
    driver = open_driver()
    if not isinstance(driver, Driver):
        raise errors.InvalidArgument(f"what opens {name} gave {type(driver).__name__}, not a driver")
    return _opened.setdefault(name, driver)


def unregister_driver(name: str) -> None:
    """Forget the driver called `name`; its memory and streams stay."""
    if _opened.pop(name, None) is None:
        raise errors.InvalidArgument(f"{name!r:.40} is not registered")


def opened() -> list[str]:
    """The names of the drivers that were brought and are open."""
    return sorted(_opened)


def find(name: str) -> Driver | None:
    """The driver that somebody else brought under this name; opens it when it is first asked for."""
    known = _opened.get(name)
    if known is not None or name in WORDS:
        return known
    for point in entry_points(group=GROUP, name=name):
        return register_driver(name, point.load())
    return None

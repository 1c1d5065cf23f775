"""Owns: which cases of a suite apply to what is under test: a case says what it needs, a suite says what it has.

A case that does not apply is not collected, and `left_out` names it with the reason: nothing passes by doing nothing.
Must not know: any suite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Suite", "needs"]

_F = TypeVar("_F", bound=Callable[..., Any])


def needs(*abilities: str) -> Callable[[_F], _F]:
    """A case for suites whose attributes of these names are true.

    >>> class Conformance(Suite):
    ...     has_wheels = True
    ...     @needs("has_wheels")
    ...     def test_it_rolls(self): ...
    >>> class TestSledge(Conformance):
    ...     has_wheels = False
    >>> TestSledge.left_out
    {'test_it_rolls': 'has_wheels is False'}
    """

    def mark(case: _F) -> _F:
        case.__dict__["needs"] = abilities
        return case

    return mark


class Suite:
    """Base of suites whose cases may say what they need.

    >>> Suite.left_out
    {}
    """

    left_out: dict[str, str] = {}  # noqa: RUF012 - each class has its own
    """The cases that do not apply here, and why."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.left_out = {}
        for name, case in _cases(cls).items():
            missing = [each for each in case.__dict__.get("needs", ()) if not getattr(cls, each)]
            setattr(cls, name, None if missing else case)
            if missing:
                cls.left_out[name] = ", ".join(f"{each} is False" for each in missing)


def _cases(cls: type) -> dict[str, Any]:
    """The cases that need something, as they were written: a class above may have left them out."""
    found: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        for name, value in vars(each).items():
            if callable(value) and "needs" in getattr(value, "__dict__", {}):
                found[name] = value
            elif value is not None:
                found.pop(name, None)
    return found

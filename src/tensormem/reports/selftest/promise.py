"""Owns: the ways in which a check says that a promise is not kept, or not offered.

Must not know: any check.
"""

__all__ = ["Broken", "NotOffered", "expect"]


class Broken(Exception):
    """A promise that the device, its driver or tensormem does not keep."""


class NotOffered(Exception):
    """What a check needs and this device, driver or machine does not have."""


def expect(kept: bool, otherwise: str) -> None:
    """Raises `Broken` with what was seen, unless the promise is kept."""
    if not kept:
        raise Broken(otherwise)

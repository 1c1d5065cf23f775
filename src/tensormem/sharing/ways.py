"""Owns: the two choices of a frame ring: what readers get, and what the writer does when it is full.

Must not know: rings.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from tensormem import errors

__all__ = ["ReadMode", "WhenFull"]


class _Choice(StrEnum):
    @classmethod
    def parse(cls, text: str) -> Self:
        """The choice of that name, or `InvalidArgument` with all of them."""
        try:
            return cls(text)
        except ValueError:
            names = ", ".join(repr(each.value) for each in cls)
            raise errors.InvalidArgument(f"{cls.__name__} is one of {names}, not {text!r:.80}") from None


class ReadMode(_Choice):
    """What a reader of a frame ring gets: the newest frame, or each one in turn.

    >>> ReadMode("every") is ReadMode.EVERY
    True
    """

    LATEST = "latest"
    EVERY = "every"


class WhenFull(_Choice):
    """What the writer of a frame ring does when all frames are unread or in use.

    >>> str(WhenFull.DROP)
    'drop'
    """

    WAIT = "wait"
    DROP = "drop"
    OVERWRITE = "overwrite"

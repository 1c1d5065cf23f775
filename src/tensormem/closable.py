"""Owns: what has `close` and is a context manager by that alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Closable"]


class Closable(ABC):
    """An owner that is closed at the end of a `with`."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what it has. Calling it again is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

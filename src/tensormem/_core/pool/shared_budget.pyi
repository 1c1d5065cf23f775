from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from tensormem._core.pool.claims import ClaimableBudget

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

class Participant(NamedTuple):
    name: str
    pid: int
    used: int
    peak: int
    guaranteed: int
    maximum: int | None
    priority: int
    asked: int
    times_asked: int

class SharedBudget(ClaimableBudget):
    @classmethod
    def create(
        cls,
        limit: int | str,
        *,
        name: str | None = None,
        guaranteed: int | str = 0,
        maximum: int | str | None = None,
        priority: int = 1,
        on_pressure: Callable[[int], object] | None = None,
        patience: float = 1.0,
    ) -> Self: ...
    @classmethod
    def attach(
        cls,
        fd: int | _HasFileno,
        *,
        name: str | None = None,
        guaranteed: int | str = 0,
        maximum: int | str | None = None,
        priority: int = 1,
        on_pressure: Callable[[int], object] | None = None,
        patience: float = 1.0,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def on_pressure(self) -> Callable[[int], object] | None: ...
    @property
    def fd(self) -> int: ...
    def fileno(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @limit.setter
    def limit(self, value: int | str) -> None: ...
    @property
    def guaranteed(self) -> int: ...
    @property
    def maximum(self) -> int | None: ...
    @property
    def priority(self) -> int: ...
    def participants(self) -> list[Participant]: ...
    @property
    def used_by_all(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

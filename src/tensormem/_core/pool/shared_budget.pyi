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
    job: str = ...
    job_limit: int | None = ...

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
        job: str | None = None,
        job_limit: int | str | None = None,
        on_idle: Callable[[int], object] | None = None,
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
        job: str | None = None,
        job_limit: int | str | None = None,
        on_idle: Callable[[int], object] | None = None,
    ) -> Self: ...
    @staticmethod
    def look(fd: int | _HasFileno) -> list[Participant]: ...
    @property
    def name(self) -> str: ...
    @property
    def on_idle(self) -> Callable[[int], object] | None: ...
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
    @property
    def job(self) -> str | None: ...
    @property
    def job_limit(self) -> int | None: ...
    @property
    def peak(self) -> int: ...
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

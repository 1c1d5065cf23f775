"""Owns: what one worker has at one moment, as a value that travels as JSON.

Must not know: engines, other workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensormem.errors import InvalidArgument

__all__ = ["WorkerStats"]


@dataclass(frozen=True)
class WorkerStats:
    """One row of `cluster_stats()`.

    >>> row = WorkerStats(engine="ray", node="ray-1f", worker="ray-77", pid=77, used=4096)
    >>> WorkerStats.from_dict(row.as_dict()) == row
    True
    """

    engine: str
    node: str
    worker: str
    pid: int
    host: str = ""
    used: int = 0
    """Bytes of the node's budget that it has: pages in use and idle ones, and what it received."""
    live: int = 0
    """Bytes that its blocks asked for, and what it received."""
    idle: int = 0
    """Bytes of `used` that nothing lies in: others of the node are given them first."""
    peak: int = 0
    """The most that `used` ever was."""
    received: int = 0
    """Bytes of tensors that came over a connection or from disk and lie where the engine put them."""
    owed: int = 0
    """More such bytes, for which there was no room: they do not count yet, and no task can use them."""
    budget: int | None = None
    """What its node has for all."""
    limit: int | None = None
    """What this worker may have."""
    guaranteed: int = 0
    job: str = ""
    """The job it works for."""
    job_budget: int | None = None
    """What its job has on its node."""
    fragmentation: float = 0.0
    spilled: int = 0
    """Bytes that the engine keeps elsewhere for it now."""
    evicted: int = 0
    """Bytes that came back under pressure, ever."""
    times_asked: int = 0
    refusals: int = 0
    tags: dict[str, int] = field(default_factory=dict)
    answered: bool = True
    """Whether the worker itself said so; False: only its ledger did."""

    def as_dict(self) -> dict[str, Any]:
        """Raw values, for JSON."""
        return {**vars(self), "tags": dict(self.tags)}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> WorkerStats:
        """What `as_dict` gave; what a newer worker says beyond that is passed over."""
        known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        try:
            return cls(**known)
        except TypeError as error:
            raise InvalidArgument(f"these are no statistics of a worker: {error}") from None

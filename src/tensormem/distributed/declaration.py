"""Owns: one declaration of a resource stack: what every worker of a cluster is to have. It travels as text.

Must not know: engines, processes, how a stack is built.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tensormem.drivers import COMPUTING, resolve
from tensormem.errors import InvalidArgument, VersionSkew
from tensormem.units import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["Declaration", "PoolKind"]

FORMAT = 1
# The package itself stands above us and is loaded already.
VERSION: str = sys.modules["tensormem"].__version__


class PoolKind(StrEnum):
    """What stands at the bottom of a stack; plain text is as good.

    >>> PoolKind("elastic") is PoolKind.ELASTIC
    True
    """

    ELASTIC = "elastic"
    """Pages on demand, given back when idle: `ElasticMemoryResource`."""
    POOL = "pool"
    """The same with a `PoolMemoryResource` on top: faster for small blocks, slower to give back."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What every worker is to have: a pool, a limit, statistics, tags, and its part in the budget of its node.

    Sizes are given as bytes or text and kept as bytes. What cannot be right is refused here, on the driver.

    >>> declaration = Declaration(budget="1GiB", limit="600MiB", guaranteed="64MiB")
    >>> declaration.budget, Declaration.from_json(declaration.to_json()) == declaration
    (1073741824, True)
    """

    budget: int | str | None = None
    """What all workers of a node may use together; None: as much as there is."""
    guaranteed: int | str = 0
    """Bytes of it that stay free for each worker while it does not use them."""
    limit: int | str | None = None
    """The most that one worker may have."""
    priority: int = 1
    """Its weight when memory is short."""
    patience: float = 1.0
    """Seconds that a claim waits for workers that were asked to give back."""
    pool: PoolKind | str = PoolKind.ELASTIC
    keep: int | str = "64MiB"
    """Idle pages that a worker keeps for reuse; they count, and go first under pressure."""
    device: WhereLike = "main"
    """Where the pool is, on every worker; kept as text."""
    statistics: bool = True
    """Whether the blocks are counted, by a `StatisticsResourceAdaptor`."""
    tags: bool = False
    """Whether use is also counted by tag; it costs a little on every allocation."""
    trace: str | None = None
    """A folder into which every worker records a trace."""
    metrics_seconds: float = 5.0
    """How often a worker tells the dashboard of its engine, where it has to; 0: never."""

    def __post_init__(self) -> None:
        for name in ("budget", "guaranteed", "limit", "keep"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parse_size(value))
        try:
            object.__setattr__(self, "pool", PoolKind(self.pool))
        except ValueError:
            raise InvalidArgument(f"a pool is one of {', '.join(PoolKind)}, not {self.pool!r:.80}") from None
        object.__setattr__(self, "device", str(resolve(self.device, COMPUTING, "a worker's pool is")))
        self._check()

    def _check(self) -> None:
        for name, kinds in (("statistics", bool), ("tags", bool), ("trace", str | None)):
            if not isinstance(getattr(self, name), kinds):
                raise InvalidArgument(f"{name} cannot be {getattr(self, name)!r:.80}")
        if type(self.priority) is not int or not 1 <= self.priority <= 1_000_000:
            raise InvalidArgument(f"priority is a whole number from 1 to 1,000,000, not {self.priority!r:.80}")
        for name in ("patience", "metrics_seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= 86_400:
                raise InvalidArgument(f"{name} is a number of seconds from 0 to 86,400, not {value!r:.80}")
        if self.budget == 0 or self.limit == 0:
            raise InvalidArgument("a budget and a limit are at least one byte; leave them out for none")
        if self.budget is None and self.guaranteed:
            raise InvalidArgument("a guarantee needs a budget that it is a part of")
        if self.limit_bytes is not None and self.guaranteed_bytes > self.limit_bytes:
            raise InvalidArgument(f"{self.guaranteed} bytes cannot be guaranteed within a limit of {self.limit}")
        if self.budget_bytes is not None and max(self.guaranteed_bytes, self.limit_bytes or 0) > self.budget_bytes:
            raise InvalidArgument(f"a worker cannot have more than the budget of its node, {self.budget} bytes")

    @property
    def budget_bytes(self) -> int | None:
        """`budget` as a number."""
        return None if self.budget is None else int(self.budget)

    @property
    def limit_bytes(self) -> int | None:
        """`limit` as a number."""
        return None if self.limit is None else int(self.limit)

    @property
    def guaranteed_bytes(self) -> int:
        """`guaranteed` as a number."""
        return int(self.guaranteed)

    def to_json(self) -> str:
        """As text for an environment variable or a message, with the version that wrote it."""
        return json.dumps({"format": FORMAT, "tensormem": VERSION, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Declaration:
        """What `to_json` wrote. `VersionSkew` when that was another version of tensormem."""
        try:
            found: dict[str, Any] = json.loads(text)
            form, theirs = found.pop("format"), str(found.pop("tensormem"))
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InvalidArgument(f"this is no declaration: {text!r:.120}") from None
        if form != FORMAT or not _goes_with(theirs):
            raise VersionSkew(theirs, VERSION, what="a declaration")
        try:
            return cls(**found)
        except TypeError as error:
            raise InvalidArgument(f"this is no declaration: {error}") from None


def _goes_with(theirs: str) -> bool:
    """Before 1.0 the second number counts, after that the first."""
    ours, others = VERSION.split("."), theirs.split(".")
    count = 2 if ours[0] == "0" else 1
    return ours[:count] == others[:count]

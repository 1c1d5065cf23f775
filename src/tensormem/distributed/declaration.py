"""Owns: one declaration of a resource stack: what every worker of a cluster is to have. It travels as text.

Must not know: engines, processes, how a stack is built.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
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

FORMAT = 2
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
    job: str | None = None
    """The job that the worker works for; several may share the budget of a node."""
    job_budget: int | str | None = None
    """What all workers of the job may use together, on each node, within the node's budget."""
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
        for name in ("budget", "guaranteed", "limit", "job_budget", "keep"):
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
        for name, kinds in (("statistics", bool), ("tags", bool), ("trace", str | None), ("job", str | None)):
            if not isinstance(getattr(self, name), kinds):
                raise InvalidArgument(f"{name} cannot be {getattr(self, name)!r:.80}")
        if type(self.priority) is not int or not 1 <= self.priority <= 1_000_000:
            raise InvalidArgument(f"priority is a whole number from 1 to 1,000,000, not {self.priority!r:.80}")
        for name in ("patience", "metrics_seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= 86_400:
                raise InvalidArgument(f"{name} is a number of seconds from 0 to 86,400, not {value!r:.80}")
        if 0 in (self.budget, self.limit, self.job_budget):
            raise InvalidArgument("a budget and a limit are at least one byte; leave them out for none")
        self._check_job()
        if self.budget is None and self.guaranteed:
            raise InvalidArgument("a guarantee needs a budget that it is a part of")
        if self.limit_bytes is not None and self.guaranteed_bytes > self.limit_bytes:
            raise InvalidArgument(f"{self.guaranteed} bytes cannot be guaranteed within a limit of {self.limit}")
        if self.budget_bytes is not None and max(self.guaranteed_bytes, self.limit_bytes or 0) > self.budget_bytes:
            raise InvalidArgument(f"a worker cannot have more than the budget of its node, {self.budget} bytes")

    def _check_job(self) -> None:
        if self.job is not None and not 1 <= len(self.job.encode()) <= 32:
            raise InvalidArgument(f"the name of a job has from 1 to 32 bytes, not {self.job!r:.80}")
        if self.job_budget_bytes is None:
            return
        if self.job is None or self.budget_bytes is None:
            raise InvalidArgument("the budget of a job needs the name of the job, and the node's budget around it")
        if self.job_budget_bytes > self.budget_bytes:
            raise InvalidArgument(f"a job cannot have more than the budget of its node, {self.budget} bytes")
        if max(self.guaranteed_bytes, self.limit_bytes or 0) > self.job_budget_bytes:
            raise InvalidArgument(f"a worker cannot have more than the budget of its job, {self.job_budget} bytes")

    @property
    def job_budget_bytes(self) -> int | None:
        """`job_budget` as a number."""
        return None if self.job_budget is None else int(self.job_budget)

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

    @classmethod
    def from_text(cls, text: str) -> Declaration:
        """What a person writes into an environment variable, or what `to_json` wrote.

        >>> Declaration.from_text("budget=8GiB, limit=2GiB, tags=true").limit
        2147483648
        """
        if text.lstrip().startswith("{"):
            return cls.from_json(text)
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.from_fields({name.strip(): value.strip() for name, _, value in pairs})

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> Declaration:
        """The fields as a configuration file or a command line has them: text is read as what the field is."""
        kinds = {each.name: each.type for each in dataclasses.fields(cls)}
        unknown = [name for name in fields if name.replace("-", "_") not in kinds]
        if unknown:
            raise InvalidArgument(f"a declaration has no {unknown[0]!r:.40}: it has {', '.join(kinds)}")
        named = {name.replace("-", "_"): value for name, value in fields.items()}
        return cls(**{name: _read(str(kinds[name]), value) for name, value in named.items()})


_READERS: dict[str, Callable[[str], object]] = {
    "bool": {"true": True, "false": False, "1": True, "0": False}.__getitem__,
    "int": int,
    "float": float,
}


def _read(kind: str, value: object) -> Any:
    """Text as the field's type; what cannot be read so is left for the checks to refuse."""
    if isinstance(value, str) and kind in _READERS:
        with suppress(ValueError, KeyError):
            return _READERS[kind](value.lower())
    return value


def _goes_with(theirs: str) -> bool:
    """Before 1.0 the second number counts, after that the first."""
    ours, others = VERSION.split("."), theirs.split(".")
    count = 2 if ours[0] == "0" else 1
    return ours[:count] == others[:count]

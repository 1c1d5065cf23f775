"""Owns: `plan`, which finds static offsets for known lifetimes, and `Plan`, what it finds, checked at once.

Must not know: how a plan is kept in a file (see plan_file), or who serves it (`tensormem.mr.PlannedMemoryResource`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tensormem._core import make_plan, plan_is_sound
from tensormem.errors import InvalidArgument, InvalidPlan
from tensormem.trace.lifetimes import Lifetime, check_lifetimes
from tensormem.units import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Plan", "PlanProgress", "plan"]


class PlanProgress(NamedTuple):
    """How far a planner has come, as it tells its `progress` function.

    >>> PlanProgress(1.5, 2048, 1024, 700).over_bound
    2.0
    """

    seconds: float
    height: int
    bound: int
    steps: int

    @property
    def over_bound(self) -> float:
        """Height over bound: 1 is as good as it can be."""
        return self.height / self.bound if self.bound else 1.0


@dataclass(frozen=True)
class Plan:
    """Where every block goes: the block `lifetimes[i]` at `offsets[i]`. One that lets blocks collide cannot be made.

    >>> made = plan([Lifetime("a", 0, 2, 100), Lifetime("b", 1, 3, 50), Lifetime("c", 2, 4, 100)])
    >>> made.height, made.bound, made.proven_optimal
    (150, 150, True)
    >>> made["a"] == made["c"]
    True
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    height: int
    bound: int
    proven_optimal: bool = False
    seconds: float = 0.0
    alignment: int = 1

    def __post_init__(self) -> None:
        if len(self.lifetimes) != len(self.offsets):
            raise InvalidPlan("", what=f"{len(self.lifetimes)} blocks and {len(self.offsets)} offsets")
        check_lifetimes(self.lifetimes)
        if any(offset % self.alignment for offset in self.offsets):
            raise InvalidPlan("", what=f"an offset is no multiple of {self.alignment}")
        if not plan_is_sound(self.lifetimes, self.offsets, self.height):
            raise InvalidPlan("", what="two blocks that live at once share bytes, or one lies outside")

    def __getitem__(self, identity: str) -> int:
        """The offset of the block with this id."""
        return self._by_id[identity]

    def __len__(self) -> int:
        return len(self.lifetimes)

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {lifetime.id: offset for lifetime, offset in zip(self.lifetimes, self.offsets, strict=True)}

    @property
    def over_bound(self) -> float:
        """Height over the most that lives at once: 1 wastes nothing."""
        return self.height / self.bound if self.bound else 1.0

    def fits(self, capacity: int | str) -> bool:
        """Whether so much memory is enough."""
        return self.height <= parse_size(capacity)

    def __str__(self) -> str:
        proof = ", proven optimal" if self.proven_optimal else ""
        return f"{len(self)} blocks in {format_size(self.height)}, {self.over_bound:.4f} of the bound{proof}"


def plan(
    lifetimes: Iterable[Lifetime],
    capacity: int | str | None = None,
    time_limit: float = 5.0,
    alignment: int | str = 1,
    progress: Callable[[PlanProgress], object] | None = None,
    *,
    seed: int = 1,
) -> Plan:
    """Offsets for blocks whose lives are known, as low as the time allows; with a `capacity`, until they are under it.

    Greedy orders come first, then an exact search, for at most `time_limit` seconds. Every offset is a multiple of
    `alignment`. `progress` is called a few times a second and may return False to have the best plan so far; Ctrl-C
    raises. The same seed gives the same plan, unless the time runs out. When the capacity cannot be met the plan is
    above it: ask `fits`.

    >>> plan([Lifetime("a", 0, 4, 100), Lifetime("b", 2, 6, 28)], alignment=64).height
    192
    """
    kept = tuple(Lifetime(*each) for each in lifetimes)
    check_lifetimes(kept)
    if not time_limit >= 0:
        raise InvalidArgument(f"time_limit is a number of seconds, 0 or more, not {time_limit!r}")
    step = parse_size(alignment)
    limit = 0 if capacity is None else max(parse_size(capacity), 1)

    def watch(*facts: float) -> object:
        seconds, *counts = facts
        return progress is None or progress(PlanProgress(seconds, *(int(count) for count in counts)))

    offsets, height, bound, proven, _, seconds, _ = make_plan(kept, limit, float(time_limit), step, seed, watch)
    return Plan(kept, tuple(offsets), height, bound, proven, seconds, step)

"""Owns: stacks of resources written as text: "limiting(24GiB)/pool", the outermost first, over a leaf that is given.

Must not know: traces. What a part needs to know of the trace (its largest block, its plan) comes with the `StackParts`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensormem import mr
from tensormem._core import abstract_driver
from tensormem.errors import InvalidArgument
from tensormem.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensormem.trace.planning import Plan

__all__ = ["StackParts", "build_stack", "stack_names"]

_PART = re.compile(r"(?P<name>[a-z]+)(?:\((?P<values>[^()]*)\))?")
_LEAST_ADDRESSES = 1 << 40
_BETWEEN = re.compile(r"/(?![^()]*\))")  # a name of a file in brackets has slashes of its own


@dataclass(frozen=True)
class StackParts:
    """What a stack is made of: the leaf; the largest block, and the most bytes at once, that it will be asked for;
    where a plan comes from; and how many bytes there are for what makes memory by itself.

    >>> parts = StackParts(mr.AbstractMemoryResource("1GiB"))
    >>> type(build_stack("limiting(1MiB)/pool", parts)).__name__
    'LimitingResourceAdaptor'
    """

    leaf: mr.DeviceMemoryResource
    largest: int = 1 << 20
    load: int = 1 << 20
    make_plan: Callable[[str | None], Plan] | None = None
    physical_limit: int | None = None
    real: bool = False
    made: list[mr.DeviceMemoryResource] = field(default_factory=list)


def stack_names() -> list[str]:
    """The names that a stack is written with.

    >>> "pool" in stack_names()
    True
    """
    return sorted(_MAKERS)


def build_stack(text: str, parts: StackParts) -> mr.DeviceMemoryResource:
    """The stack that the text names. What it is made of is added to `parts.made`, the innermost first.

    >>> parts = StackParts(mr.AbstractMemoryResource())
    >>> stack = build_stack("statistics/arena", parts)
    >>> [type(each).__name__ for each in parts.made]
    ['AbstractMemoryResource', 'ArenaMemoryResource', 'StatisticsResourceAdaptor']
    """
    named = [_parse(part, text) for part in _BETWEEN.split(text)]
    stack = parts.leaf
    parts.made.append(stack)
    for depth, (name, values) in enumerate(reversed(named)):
        if name in _LEAVES and depth > 0:
            raise InvalidArgument(f"{name} makes memory by itself, so it is the last part of {text!r:.80}")
        try:
            stack = _MAKERS[name](stack, values, parts)
        except (IndexError, ValueError) as error:
            raise InvalidArgument(f"{name}({','.join(values)}) in {text!r:.80} cannot be made: {error}") from None
        parts.made.append(stack)
    return stack


def _parse(part: str, text: str) -> tuple[str, list[str]]:
    match = _PART.fullmatch(part.strip())
    if match is None or match["name"] not in _MAKERS:
        raise InvalidArgument(f"{part!r:.40} in {text!r:.80} is not one of {', '.join(stack_names())}")
    values = [value.strip() for value in (match["values"] or "").split(",")]
    return match["name"], [value for value in values if value]


def _at_most(values: list[str], count: int) -> list[str]:
    if len(values) > count:
        raise ValueError(f"it takes at most {count} values")
    return values


def _binning(upstream: mr.DeviceMemoryResource, values: list[str]) -> mr.DeviceMemoryResource:
    low, high = (int(value) for value in _at_most(values, 2)) if values else (9, 20)
    return mr.BinningMemoryResource(mr.PoolMemoryResource(upstream), low, high)


def _planned(upstream: mr.DeviceMemoryResource, values: list[str], parts: StackParts) -> mr.DeviceMemoryResource:
    if parts.make_plan is None:
        raise ValueError("there is no plan")
    plan = parts.make_plan(_at_most(values, 1)[0] if values else None)
    return mr.PlannedMemoryResource(plan, upstream)


def _elastic(upstream: mr.DeviceMemoryResource, values: list[str], parts: StackParts) -> mr.DeviceMemoryResource:
    limits = [parse_size(value) for value in _at_most(values, 1)]
    limits += [] if parts.physical_limit is None else [parts.physical_limit]
    return mr.ElasticMemoryResource(
        "host" if parts.real else abstract_driver(),
        capacity=max(_LEAST_ADDRESSES, 2 * parts.load),
        physical_limit=min(limits, default=None),
        release_threshold=0,
    )


_LEAVES = ("elastic", "leaf")
_MAKERS: dict[str, Callable[[mr.DeviceMemoryResource, list[str], StackParts], mr.DeviceMemoryResource]] = {
    "aligned": lambda upstream, values, _: mr.AlignedResourceAdaptor(upstream, int(_at_most(values, 1)[0])),
    "arena": lambda upstream, values, _: mr.ArenaMemoryResource(upstream, *_at_most(values, 1)),
    "binning": lambda upstream, values, _: _binning(upstream, values),
    "elastic": _elastic,
    "fixed": lambda upstream, values, parts: mr.FixedSizeMemoryResource(
        upstream, _at_most(values, 1)[0] if values else parts.largest, 1
    ),
    "leaf": lambda upstream, values, _: upstream,
    "limiting": lambda upstream, values, _: mr.LimitingResourceAdaptor(upstream, _at_most(values, 1)[0]),
    "planned": _planned,
    "pool": lambda upstream, values, _: mr.PoolMemoryResource(upstream, *_at_most(values, 2)),
    "statistics": lambda upstream, values, _: mr.StatisticsResourceAdaptor(upstream),
}

"""Owns: what there is to say when memory runs out: who holds what, how the free memory lies, and what would help.

The maker that was asked (a resource with its stack, an elastic pool, a cache, a buffer, a budget) is asked again when
the report is made, so make it where the error is caught. Blocks are those that Python holds; what native callers hold
(NumPy's arrays, PyTorch's tensors) is counted, without tags. Must not know: who catches the error.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tensormem._core import Budget, DeviceBlock, DeviceMemoryResource, live_resources, space_of
from tensormem.errors import OutOfBudget, OutOfMemory, OutOfPhysicalMemory, TensormemError
from tensormem.reports.live.pools import PoolFigures, look_at_pools
from tensormem.reports.live.resources import ResourceFigures, look_at_resources
from tensormem.units import format_size

Shortage = OutOfMemory | OutOfBudget | OutOfPhysicalMemory

_VERSION = 1
_MOST_MAKERS = 10
# What resources say of themselves, under the name that reports have for it.
_FIGURES = {
    "reserved": "reserved_bytes",
    "limit": "allocation_limit",
    "pages": "physical_bytes",
    "idle": "idle_bytes",
    "free": "total_free",
    "largest free": "largest_free",
    "pending": "pending_bytes",
}


class Holder(NamedTuple):
    """Bytes in blocks of one tag."""

    tag: str
    nbytes: int
    blocks: int
    largest: int


class Maker(NamedTuple):
    """One resource or elastic pool of the process that programs ask, and what it has."""

    name: str
    space: str
    used_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class Layer:
    """One resource of the stack, the outermost first; or the elastic pool that was asked, and then its budget."""

    name: str
    outstanding_bytes: int
    retired_bytes: int
    fragmentation: float | None
    figures: dict[str, int]


@dataclass(frozen=True)
class OutOfMemoryReport:
    """Why there was no memory, in facts.

    >>> import tensormem as tm
    >>> mr = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "1MiB")
    >>> weights = mr.allocate("900KiB", tag="weights")
    >>> try:
    ...     mr.allocate("200KiB", tag="activations")
    ... except MemoryError as error:
    ...     report = error.report()
    >>> report.holders[0].tag, report.hints[0]
    ('weights', 'raise the limit of 1 MiB, or free 76 KiB')
    """

    requested: int
    tag: str
    message: str
    layers: tuple[Layer, ...]
    holders: tuple[Holder, ...]
    untracked_bytes: int
    device_free: int | None
    makers: tuple[Maker, ...]
    """Everything else in this process that has memory in the same space, the largest first."""
    hints: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Raw values with a version, for programs."""
        rest = asdict(self)
        rest["holders"] = [holder._asdict() for holder in self.holders]
        rest["makers"] = [maker._asdict() for maker in self.makers]
        return {"version": _VERSION, **rest}

    def __str__(self) -> str:
        lines = (*self._stack_lines(), *self._holder_lines(), *self._maker_lines(), *self._hint_lines())
        return "\n".join((self.message, *lines))

    def _stack_lines(self) -> Iterator[str]:
        yield "The stack, from the one that was asked down:"
        for layer in self.layers:
            facts = [f"{format_size(layer.outstanding_bytes)} out"]
            facts += [f"{name} {format_size(value)}" for name, value in layer.figures.items()]
            if layer.retired_bytes:
                facts.append(f"{format_size(layer.retired_bytes)} waits for streams")
            if layer.fragmentation:
                facts.append(f"fragmentation {layer.fragmentation:.0%}")
            yield f"  {layer.name}: {', '.join(facts)}"
        if self.device_free is not None:
            yield f"  the device has {format_size(self.device_free)} free"

    def _holder_lines(self) -> Iterator[str]:
        yield "Who holds what:" if self.holders else "Python holds no block of this stack."
        for tag, nbytes, blocks, largest in self.holders:
            yield f"  {tag}: {format_size(nbytes)} in {blocks} blocks, the largest has {format_size(largest)}"
        if self.untracked_bytes:
            yield f"  callers outside of Python: {format_size(self.untracked_bytes)}"

    def _maker_lines(self) -> Iterator[str]:
        if self.makers:
            yield "Who else has memory there:"
        for name, _, used, reserved in self.makers:
            yield f"  {name}: {format_size(used)} in use, {format_size(reserved)} taken"

    def _hint_lines(self) -> Iterator[str]:
        yield "What would help:"
        yield from (f"  - {hint}" for hint in self.hints)


def explain(error: Shortage, source: object, tag: str) -> OutOfMemoryReport:
    """The report for an error that a maker of memory raised when it was asked for memory with a tag."""
    if isinstance(source, DeviceMemoryResource):
        layers = tuple(_layer(resource) for resource in _stack(source))
        holders = tuple(_holders(source))
        space = space_of(source)
    else:
        layers = tuple(_elastic_layers(source))
        holders = tuple(_pool_holders(source))
        space = _space_of_pool(source)
    held = sum(holder.nbytes for holder in holders)
    return OutOfMemoryReport(
        requested=error.requested,
        tag=tag,
        message=str(error),
        layers=layers,
        holders=holders,
        untracked_bytes=max(0, layers[0].outstanding_bytes - held),
        device_free=_device_free(source),
        makers=tuple(_makers(source, space)),
        hints=tuple(_hints(error, layers, holders)),
    )


def dump(report: OutOfMemoryReport, path: str) -> None:
    """Write a report to a file, as JSON if it is called so; {pid} in its name is the process."""
    target = path.replace("{pid}", str(os.getpid()))
    text = json.dumps(report.as_json(), indent=2) if target.endswith(".json") else str(report)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _stack(mr: DeviceMemoryResource) -> Iterator[DeviceMemoryResource]:
    resource: DeviceMemoryResource | None = mr
    while resource is not None:
        yield resource
        resource = resource.upstream_mr


def _layer(mr: DeviceMemoryResource) -> Layer:
    counters = mr.counters
    figures = {name: getattr(mr, attribute) for name, attribute in _FIGURES.items() if hasattr(mr, attribute)}
    return Layer(
        mr.describe(), counters["current_bytes"], counters["retired_bytes"], getattr(mr, "fragmentation", None), figures
    )


def _elastic_layers(pool: object) -> Iterator[Layer]:
    """An elastic pool, cache or buffer, and the budget that it shares; or a budget that was asked by hand."""
    if isinstance(pool, Budget):
        yield _budget_layer(pool)
        return
    stats = _try(pool, "stats")
    live: int = getattr(stats, "live_bytes", 0) or getattr(stats, "used_bytes", 0)
    names = {"pages": "physical_memory_usage", "limit": "physical_limit", "addresses": "capacity"}
    figures = {name: value for name, attribute in names.items() if (value := _try(pool, attribute)) is not None}
    yield Layer(type(pool).__name__, live, 0, getattr(stats, "fragmentation", None), figures)
    budget = getattr(pool, "budget", None)
    if isinstance(budget, Budget):
        yield _budget_layer(budget)


def _budget_layer(budget: Budget) -> Layer:
    most: int | None = budget.limit
    return Layer(type(budget).__name__, budget.used, 0, None, {} if most is None else {"limit": most})


def _try(pool: object, name: str) -> Any:
    """A property, or what a method without arguments gives; None where the maker has none, or is closed by now."""
    try:
        value = getattr(pool, name, None)
        return value() if callable(value) else value
    except TensormemError:
        return None


def _pool_holders(pool: object) -> list[Holder]:
    """Blocks that an elastic pool found a place for, by tag."""
    blocks = [(block.tag, block.size) for block in list(getattr(pool, "_blocks", {}).values()) if block.live]
    return _by_tag(blocks)


def _holders(mr: DeviceMemoryResource) -> list[Holder]:
    """Live blocks of this stack, or of another that stands on the same ground, by tag: the largest share first."""
    ground = list(_stack(mr))[-1]
    # One that is being made has no generation yet.
    blocks = [each for each in gc.get_objects() if type(each) is DeviceBlock and each.generation]
    mine = [block for block in blocks if block.state == "live" and list(_stack(block.mr))[-1] is ground]
    return _by_tag([(block.tag, block.nbytes) for block in mine])


def _by_tag(blocks: list[tuple[str, int]]) -> list[Holder]:
    totals: dict[str, Holder] = {}
    for tag, size in blocks:
        nbytes, count, largest = totals.get(tag, Holder("", 0, 0, 0))[1:]
        totals[tag] = Holder(tag, nbytes + size, count + 1, max(largest, size))
    return sorted(totals.values(), key=lambda holder: -holder.nbytes)


def _makers(source: object, space: str) -> Iterator[Maker]:
    """The largest of the others that share the space, by the figures that `top` shows."""
    mine = {id(each) for each in (_stack(source) if isinstance(source, DeviceMemoryResource) else [source])}
    own = {number for number, mr in live_resources() if id(mr) in mine}
    resources = [each for each in look_at_resources() if each.outermost and each.id not in own]
    found: list[ResourceFigures | PoolFigures] = [*resources, *look_at_pools()]
    others = [each for each in found if each.space == space and each.reserved_bytes]
    for each in sorted(others, key=lambda each: -each.reserved_bytes)[:_MOST_MAKERS]:
        yield Maker(each.name, each.space, each.used_bytes, each.reserved_bytes)


def _space_of_pool(pool: object) -> str:
    driver = getattr(pool, "driver", None)
    return f"gpu:{pool.device}" if driver is not None and driver.name not in ("host", "abstract") else "main"  # type: ignore[attr-defined]


def _device_free(source: Any) -> int | None:
    try:
        ordinal = source.device_ordinal if isinstance(source, DeviceMemoryResource) else source.device
        free: int = source.driver.memory_info(ordinal)[0]
        return free
    except Exception:  # a report must not fail because a driver does
        return None


def _hints(error: Shortage, layers: tuple[Layer, ...], holders: tuple[Holder, ...]) -> Iterator[str]:
    if isinstance(error, OutOfBudget):
        missing = error.requested - error.remaining
        yield f"raise the limit of {format_size(error.limit)}, or free {format_size(missing)}"
    if isinstance(error, OutOfMemory) and error.total_free >= error.requested > error.largest_free:
        yield (
            f"{format_size(error.total_free)} are free, but in pieces of at most {format_size(error.largest_free)}: "
            "free the blocks between them, or use ElasticMemoryResource, which moves pages instead"
        )
    retired = max((layer.retired_bytes for layer in layers), default=0)
    if retired:
        yield f"synchronize the streams and call reap_pending(): {format_size(retired)} wait for them"
    idle = sum(layer.figures.get("free", 0) + layer.figures.get("idle", 0) for layer in layers[1:])
    if idle:
        yield f"trim() the pools below: {format_size(idle)} are kept there and not in use"
    if holders:
        share = holders[0].nbytes / max(1, sum(holder.nbytes for holder in holders))
        yield f"start with {holders[0].tag!r}: it holds {format_size(holders[0].nbytes)}, {share:.0%} of all blocks"
    yield "record a trace (TENSORMEM_TRACE=run.tmt) and look at the peak with `tensormem stats run.tmt`"

"""Owns: what there is to say when memory runs out: who holds what, how the free memory lies, and what would help.

The stack of resources is asked when the report is made, so make it where the error is caught. Blocks are those that
Python holds; what native callers hold (NumPy's arrays, PyTorch's tensors) is counted, without tags.
Must not know: who catches the error.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tensormem._core import DeviceBlock, DeviceMemoryResource
from tensormem.errors import OutOfBudget, OutOfMemory, OutOfPhysicalMemory
from tensormem.units import format_size

Shortage = OutOfMemory | OutOfBudget | OutOfPhysicalMemory

_VERSION = 1
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


@dataclass(frozen=True)
class Layer:
    """One resource of the stack, the outermost first."""

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
    hints: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Raw values with a version, for programs."""
        rest = asdict(self)
        rest["holders"] = [holder._asdict() for holder in self.holders]
        return {"version": _VERSION, **rest}

    def __str__(self) -> str:
        return "\n".join((self.message, *self._stack_lines(), *self._holder_lines(), *self._hint_lines()))

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

    def _hint_lines(self) -> Iterator[str]:
        yield "What would help:"
        yield from (f"  - {hint}" for hint in self.hints)


def explain(error: Shortage, mr: DeviceMemoryResource, tag: str) -> OutOfMemoryReport:
    """The report for an error that `mr` raised when it was asked for a block with a tag."""
    layers = tuple(_layer(resource) for resource in _stack(mr))
    holders = tuple(_holders(mr))
    held = sum(holder.nbytes for holder in holders)
    return OutOfMemoryReport(
        requested=error.requested,
        tag=tag,
        message=str(error),
        layers=layers,
        holders=holders,
        untracked_bytes=max(0, mr.bytes_outstanding - held),
        device_free=_device_free(mr),
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


def _holders(mr: DeviceMemoryResource) -> list[Holder]:
    """Live blocks of this stack, or of another that stands on the same ground, by tag: the largest share first."""
    ground = list(_stack(mr))[-1]
    totals: dict[str, Holder] = {}
    for block in gc.get_objects():
        # One that is being made has no generation yet.
        if type(block) is not DeviceBlock or not block.generation or block.state != "live":
            continue
        if list(_stack(block.mr))[-1] is ground:
            nbytes, count, largest = totals.get(block.tag, Holder("", 0, 0, 0))[1:]
            totals[block.tag] = Holder(block.tag, nbytes + block.nbytes, count + 1, max(largest, block.nbytes))
    return sorted(totals.values(), key=lambda holder: -holder.nbytes)


def _device_free(mr: DeviceMemoryResource) -> int | None:
    try:
        return mr.driver.memory_info(mr.device_ordinal)[0]
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

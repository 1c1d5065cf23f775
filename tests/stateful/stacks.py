"""Owns: random stacks of resources: a leaf, and up to four layers with options drawn for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from support.heap import Heap
from tensormem import mr

KIB, MIB = 1 << 10, 1 << 20

Upstream = mr.DeviceMemoryResource


class PassingOn(mr.DeviceMemoryResource):
    """An adaptor written in Python that changes nothing."""


def retry_once() -> Callable[[int], bool]:
    """Says "again" to every other question, so that each shortage is met with one more try."""
    asked = 0

    def again(nbytes: int) -> bool:
        nonlocal asked
        asked += 1
        return asked % 2 == 1

    return again


_BUILDERS: dict[str, Callable[..., Upstream]] = {
    "pool": mr.PoolMemoryResource,
    "fixed": mr.FixedSizeMemoryResource,
    "binning": mr.BinningMemoryResource,
    "arena": mr.ArenaMemoryResource,
    "limiting": mr.LimitingResourceAdaptor,
    "statistics": mr.StatisticsResourceAdaptor,
    "aligned": mr.AlignedResourceAdaptor,
    "prefetch": mr.PrefetchResourceAdaptor,
    "faults": mr.FaultInjectionResourceAdaptor,
    "pressure": lambda upstream, **marks: mr.PressureResourceAdaptor(upstream, lambda level, used: None, **marks),
    "retry": lambda upstream: mr.FailureCallbackResourceAdaptor(upstream, retry_once()),
    "python": PassingOn,
    "logging": lambda upstream: mr.LoggingResourceAdaptor(upstream, sink=mr.RingSink(16)),
    "tracking": mr.TrackingResourceAdaptor,
    "guard": lambda upstream: mr.DebugGuardResourceAdaptor(upstream, quarantine_bytes=0),
}
_CUTS_UP = {"pool", "fixed", "binning", "arena"}


@dataclass(frozen=True)
class Layer:
    """One resource on top of another."""

    kind: str
    options: dict[str, Any]

    def build(self, upstream: Upstream) -> Upstream:
        return _BUILDERS[self.kind](upstream, **self.options)

    @property
    def may_refuse(self) -> bool:
        """Whether it can be short of memory while the machine is not."""
        limits = ("maximum_pool_size", "arena_size", "allocation_limit")
        return self.kind in ("fixed", "faults") or any(self.options.get(limit) is not None for limit in limits)


@dataclass(frozen=True)
class StackPlan:
    """A leaf and what stands on it, lowest first."""

    leaf: str
    layers: tuple[Layer, ...]

    @property
    def may_refuse(self) -> bool:
        return any(layer.may_refuse for layer in self.layers)

    @property
    def grows_on_the_default_stream_only(self) -> bool:
        """Whether an allocation on a stream never takes one on the default stream that could wait for a third."""
        return all(layer.kind != "binning" for layer in self.layers)

    def build(self) -> tuple[Upstream, Upstream, Heap]:
        """The top, the leaf, and the heap behind the leaf if it is made of callbacks."""
        heap = Heap()
        leaf: Upstream = heap.resource() if self.leaf == "callback" else mr.HostMemoryResource()
        top = leaf
        for layer in self.layers:
            top = layer.build(top)
        return top, leaf, heap


def _layer(kind: str, **options: st.SearchStrategy[Any]) -> st.SearchStrategy[Layer]:
    return st.fixed_dictionaries(options).map(lambda drawn: Layer(kind, drawn))


def _one_of(*values: object) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


_SUBALLOCATORS = st.one_of(
    _layer(
        "pool",
        initial_pool_size=_one_of(None, 64 * KIB, MIB),
        maximum_pool_size=_one_of(None, 2 * MIB, 8 * MIB),
        release_threshold=_one_of(None, 0, MIB),
    ),
    _layer("fixed", block_size=_one_of(1, 4 * KIB, 1000 * KIB), blocks_to_preallocate=_one_of(1, 3, 16)),
    _layer("binning", min_size_exponent=_one_of(4, 8), max_size_exponent=_one_of(10, 13)),
    _layer("arena", arena_size=_one_of(None, 8 * MIB), arenas=_one_of(1, 3)),
)
_ADAPTORS = st.one_of(
    _layer("limiting", allocation_limit=_one_of(100 * KIB, 5 * MIB, 64 * MIB)),
    _layer("statistics"),
    _layer("aligned", alignment=_one_of(1, 512, 64 * KIB), alignment_threshold=_one_of(0, 10_000)),
    _layer("prefetch"),
    _layer("faults", every=_one_of(2, 7), probability=_one_of(0.5, 1.0), seed=st.integers(0, 9)),
    _layer("pressure", warn=_one_of(1000, MIB), critical=_one_of(MIB, 3 * MIB), hysteresis=_one_of(0, 999)),
    _layer("retry"),
    _layer("python"),
    _layer("logging"),
    _layer("tracking"),
    _layer("guard"),
)


def _is_sensible(layers: list[Layer]) -> bool:
    # Whoever cuts up fixed blocks never gets a chunk: such a stack refuses everything.
    cutters = [layer.kind for layer in layers if layer.kind in _CUTS_UP]
    return "fixed" not in cutters[:-1]


def stack_plans() -> st.SearchStrategy[StackPlan]:
    """Stacks of one to five resources."""
    layers = st.lists(st.one_of(_SUBALLOCATORS, _ADAPTORS), max_size=4).filter(_is_sensible)
    return st.builds(StackPlan, leaf=_one_of("host", "callback"), layers=layers.map(tuple))

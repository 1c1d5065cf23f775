"""For every k the k-th upstream allocation or system call fails: nothing leaks, every count adds up."""

import gc
from collections.abc import Callable
from contextlib import suppress

import pytest

from support.holdings import nothing_left_behind
from support.hooks import unraisable
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.faults import each_system_call_fails
from tensormem.testing.resources import Gate

MIB = 1 << 20

Upstream = mr.DeviceMemoryResource


class PassingOn(mr.DeviceMemoryResource):
    """An adaptor written in Python that changes nothing."""


STACKS: dict[str, Callable[[Upstream], Upstream]] = {
    "leaf": lambda upstream: upstream,
    "pool": mr.PoolMemoryResource,
    "pool with an initial size": lambda upstream: mr.PoolMemoryResource(upstream, "1MiB"),
    "pool that keeps nothing": lambda upstream: mr.PoolMemoryResource(upstream, release_threshold=0),
    "pool of a pool": lambda upstream: mr.PoolMemoryResource(mr.PoolMemoryResource(upstream)),
    "fixed size": lambda upstream: mr.FixedSizeMemoryResource(upstream, "4MiB", 2),
    "binning": lambda upstream: mr.BinningMemoryResource(upstream, 10, 12),
    "arena": lambda upstream: mr.ArenaMemoryResource(upstream, "64MiB", arenas=2),
    "limiting": lambda upstream: mr.LimitingResourceAdaptor(upstream, "64MiB"),
    "statistics": mr.StatisticsResourceAdaptor,
    "aligned": lambda upstream: mr.AlignedResourceAdaptor(upstream, 4096),
    "prefetch": mr.PrefetchResourceAdaptor,
    "failure callback": lambda upstream: mr.FailureCallbackResourceAdaptor(upstream, lambda nbytes: False),
    "pressure": lambda upstream: mr.PressureResourceAdaptor(upstream, lambda *told: None, warn=1000, critical=MIB),
    "logging": lambda upstream: mr.LoggingResourceAdaptor(upstream, sink=mr.RingSink(8)),
    "tracking": lambda upstream: mr.TrackingResourceAdaptor(upstream, capture_stacks=True),
    "debug guard": lambda upstream: mr.DebugGuardResourceAdaptor(upstream, quarantine_bytes=0),
    "written in Python": PassingOn,
    "five at once": lambda upstream: mr.StatisticsResourceAdaptor(
        PassingOn(mr.LimitingResourceAdaptor(mr.PoolMemoryResource(PassingOn(upstream)), "64MiB"))
    ),
}


def use(resource: Upstream) -> None:
    """Blocks on two streams, uses across them, one block dropped and one given back while others still use it.

    While the gate is closed nothing is allocated on the default stream: short of memory, that would wait for the gate.
    """
    gate = Gate()
    with Stream(host()) as stream:
        small, strict = resource.allocate(1000), resource.allocate(100_000, alignment=8192)
        gate.hold(stream)
        try:
            large = resource.allocate(3 * MIB, stream)
            with resource.launch(stream) as launched:
                launched.read(small)
                launched.write(large)
            resource.deallocate(small)
            resource.deallocate(large, stream)
            del strict
            early = resource.allocate(2 * MIB, stream)
            resource.deallocate(early, stream)
        finally:
            gate.open()
            stream.synchronize()
        resource.deallocate(resource.allocate(2 * MIB))
    resource.reap_pending()


def check_books(resource: Upstream) -> None:
    """Nothing is out, and every count says so."""
    gc.collect()
    resource.reap_pending()
    assert (resource.bytes_outstanding, resource.counters["current_bytes"]) == (0, 0)
    assert (resource.counters["current_count"], resource.counters["retired_count"]) == (0, 0)
    if isinstance(resource, mr.StatisticsResourceAdaptor):
        counts = resource.allocation_counts
        assert (counts.current_bytes, counts.current_count) == (0, 0)
    if isinstance(resource, mr.LimitingResourceAdaptor):
        assert resource.remaining == resource.allocation_limit
    if isinstance(resource, mr.PoolMemoryResource):
        assert (resource.pending_bytes, resource.total_free) == (0, resource.pool_size)


def fail_upstream_allocation(name: str, nth: int) -> int:
    """Builds and uses the stack while its `nth` upstream allocation fails; says how many failed."""
    leaf = mr.HostMemoryResource()
    faults = mr.FaultInjectionResourceAdaptor(leaf, nth=nth)
    try:
        resource = STACKS[name](faults)
    except errors.OutOfMemory:
        return faults.injected_faults
    with suppress(errors.OutOfMemory):  # or the stack finds another way: a smaller chunk, another arena
        use(resource)
    failed = faults.injected_faults
    check_books(resource)
    if failed:
        use(resource)
        check_books(resource)
    del resource
    gc.collect()
    assert leaf.bytes_outstanding == 0
    return failed


@pytest.mark.parametrize("name", STACKS)
def test_whichever_upstream_allocation_fails_nothing_leaks(name: str) -> None:
    nth, failed = 0, 1
    while failed:
        nth += 1
        with nothing_left_behind():
            failed = fail_upstream_allocation(name, nth)
    assert nth > 1, "the stack does not get its memory from its upstream"


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(
    "leaf",
    [mr.HostMemoryResource, mr.PinnedMemoryResource, mr.ElasticMemoryResource],
    ids=["host", "pinned", "elastic"],
)
def test_whichever_system_call_fails_nothing_leaks(name: str, leaf: Callable[[], Upstream]) -> None:
    use(STACKS[name](leaf()))  # what is set up once for the whole process is set up now

    def scenario() -> None:
        made.append(STACKS[name](leaf()))
        use(made[0])

    runs, made, more = 0, list[Upstream](), True
    outcomes = each_system_call_fails(scenario)
    while more:
        with nothing_left_behind():
            with unraisable() as dropped:  # a block that cannot go back when it is dropped is told there
                outcome = next(outcomes, "the end")
            assert all(isinstance(error, errors.TensormemError) for error in dropped)
            dropped.clear()
            assert outcome in (None, "the end") or isinstance(outcome, errors.TensormemError), repr(outcome)
            if made:
                check_books(made[0])
                use(made[0])
                check_books(made[0])
            made.clear()
        more = outcome != "the end"
        runs += 1
    assert runs > 1


# --- Virtual memory ---


def reserve_map_and_give_back() -> None:
    driver, size = host(), 4 * MIB
    address = driver.reserve(2 * size, 2 * MIB)
    try:
        physical = driver.physical_create(size, exportable=True)
        try:
            driver.map(address, size, physical)
            try:
                driver.set_access(address, size, "read_write")
            finally:
                until_done(lambda: driver.unmap(address, size))
        finally:
            until_done(lambda: driver.physical_destroy(physical))
    finally:
        until_done(lambda: driver.release(address, 2 * size))


def until_done(call: Callable[[], object]) -> None:
    """A planned fault fails one call, once."""
    try:
        call()
    except errors.TensormemError:
        call()


def test_whichever_system_call_of_virtual_memory_fails_nothing_leaks() -> None:
    reserve_map_and_give_back()
    with nothing_left_behind():
        outcomes = list(each_system_call_fails(reserve_map_and_give_back))
        reserve_map_and_give_back()  # what the kernel refused to take back is given back with the next one
    assert any(outcome is not None for outcome in outcomes)
    assert all(outcome is None or isinstance(outcome, errors.TensormemError) for outcome in outcomes)

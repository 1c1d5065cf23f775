"""For every k the k-th upstream allocation or system call fails: nothing leaks, every count adds up, it works after."""

import gc
from collections.abc import Callable
from contextlib import suppress

import pytest

from support.holdings import nothing_left_behind
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
    "debug guard": mr.DebugGuardResourceAdaptor,
    "written in Python": PassingOn,
    "five at once": lambda upstream: mr.StatisticsResourceAdaptor(
        PassingOn(mr.LimitingResourceAdaptor(mr.PoolMemoryResource(PassingOn(upstream)), "64MiB"))
    ),
}


def use(resource: Upstream) -> None:
    """Blocks on two streams, uses across them, a block dropped, one given back while it is waited for."""
    gate = Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        try:
            small, large, strict = (
                resource.allocate(1000),
                resource.allocate(3 * MIB, stream),
                resource.allocate(100_000, alignment=8192),
            )
            with resource.launch(stream) as launched:
                launched.read(small)
                launched.write(large)
            resource.deallocate(small)
            resource.deallocate(large, stream)
            del strict
            heir = resource.allocate(2 * MIB)
        finally:
            gate.open()
        stream.synchronize()
        resource.deallocate(heir)
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


@pytest.mark.parametrize("name", STACKS)
def test_whichever_upstream_allocation_fails_nothing_leaks(name: str) -> None:
    leaf, faults_seen = mr.HostMemoryResource(), 0
    for nth in range(1, 50):
        faults = mr.FaultInjectionResourceAdaptor(leaf, nth=nth)
        with nothing_left_behind():
            try:
                resource = STACKS[name](faults)
            except errors.OutOfMemory:
                assert faults.injected_faults == 1
                faults_seen += 1
                continue
            with suppress(errors.OutOfMemory):  # or the stack found another way: a smaller chunk, another arena
                use(resource)
            check_books(resource)
            use(resource)
            check_books(resource)
            del resource
            gc.collect()
            assert leaf.bytes_outstanding == 0
        if faults.injected_faults == 0:
            break
        faults_seen += 1
    assert faults.injected_faults == 0, "some call was never reached"
    assert faults_seen > 0


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("leaf", [mr.HostMemoryResource, mr.PinnedMemoryResource], ids=["host", "pinned"])
def test_whichever_system_call_fails_nothing_leaks(name: str, leaf: Callable[[], Upstream]) -> None:
    use(STACKS[name](leaf()))  # what is set up once for the whole process is set up now

    def scenario() -> None:
        made.append(leaf())
        made.append(STACKS[name](made[0]))
        use(made[1])

    runs, made = 0, list[Upstream]()
    outcomes = each_system_call_fails(scenario)
    while True:
        with nothing_left_behind():
            outcome = next(outcomes, "the end")
            if len(made) == 2:
                check_books(made[1])
                use(made[1])
                check_books(made[1])
            made.clear()
        if outcome == "the end":
            break
        assert outcome is None or isinstance(outcome, errors.TensormemError | MemoryError), repr(outcome)
        runs += 1
    assert runs > 0


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

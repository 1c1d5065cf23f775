"""Functions of the caller that raise, give nonsense, or come back into the resource that called them."""

from collections.abc import Callable

import pytest

from support.heap import Heap, raising
from support.holdings import nothing_left_behind
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

ERRORS = [ValueError("wrong"), OSError(5, "broken"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()]


@pytest.fixture
def heap() -> Heap:
    return Heap()


def no_room(nbytes: int) -> mr.DeviceMemoryResource:
    return mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), min_bytes=nbytes)


# --- Making memory ---


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_allocate_function_that_raises_is_a_failed_callback(heap: Heap, error: BaseException) -> None:
    resource = heap.resource()
    heap.before_take = raising(error)
    with pytest.raises(errors.CallbackFailed) as caught:
        resource.allocate(100)
    assert caught.value.__cause__ is error
    assert (resource.bytes_outstanding, resource.counters["current_count"]) == (0, 0)
    heap.before_take = lambda nbytes: None
    resource.deallocate(resource.allocate(100))
    assert heap.out == {}


def test_a_memory_error_is_a_shortage_that_others_can_help_with(heap: Heap) -> None:
    resource = heap.resource()
    error = MemoryError("none left")
    heap.before_take = raising(error)

    def make_room(nbytes: int) -> bool:
        heap.before_take = lambda nbytes: None
        return True

    with pytest.raises(errors.OutOfMemory) as caught:
        resource.allocate(100)
    assert (caught.value.requested, caught.value.__cause__) == (100, error)
    assert mr.FailureCallbackResourceAdaptor(resource, make_room).allocate(100).state == "live"


@pytest.mark.parametrize("given", [0, None])
def test_no_address_means_no_memory(given: int | None) -> None:
    returned: list[int] = []
    resource = mr.CallbackMemoryResource(
        lambda nbytes, stream: given,
        lambda address, nbytes, stream: returned.append(address),
    )
    with pytest.raises(errors.OutOfMemory) as caught:
        resource.allocate(100)
    assert (caught.value.requested, resource.bytes_outstanding, returned) == (100, 0, [])


@pytest.mark.parametrize(
    "given",
    [-1, 2**64, 2**100, 1.5, "0x1000", b"", [4096], object()],
    ids=lambda given: type(given).__name__ if type(given) is object else repr(given),
)
def test_what_is_no_address_is_refused(given: object) -> None:
    returned: list[int] = []
    resource = mr.CallbackMemoryResource(
        lambda nbytes, stream: given,  # type: ignore[arg-type, return-value]
        lambda address, nbytes, stream: returned.append(address),
    )
    with pytest.raises(errors.InvalidArgument, match="address"):
        resource.allocate(100)
    assert (resource.bytes_outstanding, returned) == (0, [])


@pytest.mark.parametrize("address", [2**64 - 1, 2**64 - 100, 2**64 - 256])
@pytest.mark.parametrize("alignment", [1, 256, 4096])
def test_memory_beyond_the_last_address_is_refused_and_given_back(address: int, alignment: int) -> None:
    returned: list[int] = []
    resource = mr.CallbackMemoryResource(
        lambda nbytes, stream: address, lambda address, nbytes, stream: returned.append(address), alignment=1
    )
    with pytest.raises(errors.InvalidArgument):
        resource.allocate(1000, alignment=alignment)
    assert (resource.bytes_outstanding, returned) == (0, [address])


def test_an_address_that_is_not_aligned_as_promised_is_refused_and_given_back() -> None:
    returned: list[tuple[int, int]] = []
    resource = mr.CallbackMemoryResource(
        lambda nbytes, stream: 0x10010,
        lambda address, nbytes, stream: returned.append((address, nbytes)),
        alignment=256,
    )
    with pytest.raises(errors.InvalidAlignment):
        resource.allocate(100)
    assert (resource.bytes_outstanding, returned) == (0, [(0x10010, 100)])


def test_an_address_that_is_out_already_stays_with_its_owner() -> None:
    returned: list[int] = []
    resource = mr.CallbackMemoryResource(
        lambda nbytes, stream: 0x10000, lambda address, nbytes, stream: returned.append(address)
    )
    first = resource.allocate(100)
    with pytest.raises(errors.TensormemError):
        resource.allocate(100)
    assert (first.state, returned, resource.bytes_outstanding) == ("live", [], 100)
    resource.deallocate(first)
    assert returned == [0x10000]


# --- Taking it back ---


@pytest.mark.parametrize("error", [*ERRORS, MemoryError()], ids=repr)
def test_a_deallocate_function_that_raises_keeps_the_block_counted(heap: Heap, error: BaseException) -> None:
    limited = mr.LimitingResourceAdaptor(mr.StatisticsResourceAdaptor(heap.resource()), "1MiB")
    block, other = limited.allocate(100), limited.allocate(200)
    heap.before_give_back = raising(error)
    with pytest.raises((errors.CallbackFailed, errors.OutOfMemory)) as caught:
        limited.deallocate(block)
    assert caught.value.__cause__ is error
    assert (limited.bytes_outstanding, limited.counters["current_bytes"]) == (300, 300)
    heap.before_give_back = lambda address: None
    with pytest.raises(errors.UseAfterFree):
        limited.deallocate(block)
    limited.deallocate(other)
    assert (limited.bytes_outstanding, limited.counters["current_bytes"]) == (100, 100)


def test_a_deallocate_function_that_raises_in_reaping_is_told_and_the_rest_is_reaped(heap: Heap) -> None:
    resource, gate = heap.resource(), Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        blocks = [resource.allocate(nbytes, stream) for nbytes in (1, 10, 100)]
        for block in blocks:
            resource.deallocate(block, stream)
        gate.open()
        stream.synchronize()
        sick = blocks[1].ptr

        def refuse(address: int) -> None:
            if abs(sick - address) < 1000 and len(heap.out[address]) < 1000:
                raise OSError("sick")

        heap.before_give_back = lambda address: refuse(address) if len(heap.out[address]) == 10 + 255 else None
        with pytest.raises(errors.CallbackFailed):
            resource.reap_pending()
        assert resource.bytes_outstanding == 10
        heap.before_give_back = lambda address: None


# --- Retrying and pressure ---


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_failure_callback_that_raises_ends_the_allocation(error: BaseException) -> None:
    retrying = mr.FailureCallbackResourceAdaptor(no_room(50), raising(error))
    with pytest.raises(errors.CallbackFailed) as caught:
        retrying.allocate(100)
    assert (caught.value.__cause__, retrying.bytes_outstanding) == (error, 0)
    retrying.deallocate(retrying.allocate(10))


def test_a_failure_callback_that_gives_nonsense_is_asked_for_its_truth() -> None:
    class Undecided:
        def __bool__(self) -> bool:
            raise KeyError("who knows")

    with pytest.raises(errors.CallbackFailed) as caught:
        mr.FailureCallbackResourceAdaptor(no_room(50), lambda nbytes: Undecided()).allocate(100)
    assert isinstance(caught.value.__cause__, KeyError)
    nothing: tuple[object, ...] = (None, 0, "", [])
    for falsy in nothing:
        with pytest.raises(errors.OutOfMemory):
            mr.FailureCallbackResourceAdaptor(no_room(50), {100: falsy}.__getitem__).allocate(100)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_pressure_callback_that_raises_loses_no_memory(error: BaseException) -> None:
    def shout(level: str, used: int) -> None:
        raise error

    pressed = mr.PressureResourceAdaptor(mr.HostMemoryResource(), shout, warn=100, critical=200)
    blocks = [pressed.allocate(150), pressed.allocate(150)]
    assert (pressed.level, pressed.bytes_outstanding) == ("critical", 300)
    with pytest.raises(errors.CallbackFailed) as caught:
        pressed.allocate(1)
    assert (caught.value.__cause__, pressed.bytes_outstanding) == (error, 300)
    for block in blocks:
        pressed.deallocate(block)
    assert (pressed.level, pressed.bytes_outstanding) == ("normal", 0)


# --- Coming back in ---


def test_an_allocate_function_may_use_the_resource_it_serves(heap: Heap) -> None:
    def also_small(nbytes: int) -> None:
        if nbytes > 1000:
            inner.append(resource.allocate(10))

    inner: list[mr.DeviceBlock] = []
    resource = heap.resource()
    heap.before_take = also_small
    outer = resource.allocate(2000)
    assert [(block.nbytes, block.state) for block in (outer, *inner)] == [(2000, "live"), (10, "live")]
    assert (resource.bytes_outstanding, len(heap.out)) == (2010, 2)


def test_a_deallocate_function_may_use_the_resource_it_serves(heap: Heap) -> None:
    resource = heap.resource()
    inner = [resource.allocate(10)]
    outer = resource.allocate(2000)
    heap.before_give_back = lambda address: resource.deallocate(inner.pop()) if inner else None
    resource.deallocate(outer)
    assert (resource.bytes_outstanding, heap.out, inner) == (0, {}, [])


def test_an_allocate_function_that_never_ends_reaches_the_recursion_limit(heap: Heap) -> None:
    resource = heap.resource()
    heap.before_take = lambda nbytes: resource.allocate(nbytes)
    with pytest.raises((errors.CallbackFailed, RecursionError)):
        resource.allocate(100)
    heap.before_take = lambda nbytes: None
    assert resource.bytes_outstanding == 0
    resource.deallocate(resource.allocate(100))


@pytest.mark.parametrize("make", [mr.PoolMemoryResource, mr.StatisticsResourceAdaptor, mr.ArenaMemoryResource])
def test_functions_below_a_stack_may_use_the_stack(
    heap: Heap, make: Callable[[mr.DeviceMemoryResource], mr.DeviceMemoryResource]
) -> None:
    top = make(heap.resource())
    inner: list[mr.DeviceBlock] = []

    def also_small(nbytes: int) -> None:
        if not inner and nbytes > 1000:
            inner.append(None)  # type: ignore[arg-type]
            inner[0] = top.allocate(64)

    heap.before_take = also_small
    outer = top.allocate(100_000)
    assert {outer.state, inner[0].state} == {"live"}
    spans = sorted((block.ptr, block.ptr + block.nbytes) for block in (outer, inner[0]))
    assert spans[0][1] <= spans[1][0]


# --- Going away ---


def test_an_upstream_that_is_dropped_first_serves_until_the_last_block(heap: Heap) -> None:
    with nothing_left_behind():
        block = mr.PoolMemoryResource(mr.LimitingResourceAdaptor(heap.resource(), "8MiB")).allocate(1000)
        assert len(heap.out) == 1
        block.mr.deallocate(block)
        del block
    assert heap.out == {}


def test_what_waits_for_a_stream_goes_back_when_the_resource_ends(heap: Heap) -> None:
    resource, gate = heap.resource(), Gate()
    with Stream(host()) as stream, Stream(host()) as opener:
        gate.hold(stream)
        resource.deallocate(resource.allocate(1000, stream), stream)
        assert len(heap.out) == 1
        opener.launch(gate.open)
        del resource  # waits for the stream
        assert heap.out == {}

"""Stream capture on the simulated GPU: what is written down, what is refused, and what makes a capture invalid."""

import ctypes
from collections.abc import Callable, Iterator

import pytest

from support.bare_gpu import BareGpu
from tensormem.testing import simulated_gpu

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED = range(900, 905)
ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(905, 909)
ILLEGAL_STATE = 401


@pytest.fixture(params=["cuda", "rocm"])
def bare(request: pytest.FixtureRequest) -> Iterator[BareGpu]:
    with simulated_gpu(2, "64MiB", vendor=request.param) as gpu:
        yield BareGpu(gpu)


def begin(bare: BareGpu, mode: int = GLOBAL, *, blocking: bool = False) -> ctypes.c_void_p:
    stream = bare.stream(blocking=blocking)
    bare.ask("StreamBeginCapture", stream, ctypes.c_int(mode))
    return stream


def end(bare: BareGpu, stream: ctypes.c_void_p) -> tuple[int, ctypes.c_void_p]:
    graph = ctypes.c_void_p()
    return bare.call("StreamEndCapture", stream, ctypes.byref(graph)), graph


def status(bare: BareGpu, stream: ctypes.c_void_p) -> int:
    value = ctypes.c_int(-1)
    bare.ask("StreamIsCapturing", stream, ctypes.byref(value))
    return value.value


def exchange(bare: BareGpu, mode: int) -> int:
    value = ctypes.c_int(mode)
    bare.ask("ThreadExchangeStreamCaptureMode", ctypes.byref(value))
    return value.value


def launch(bare: BareGpu, graph: ctypes.c_void_p, stream: ctypes.c_void_p, times: int = 1) -> ctypes.c_void_p:
    executable = ctypes.c_void_p()
    bare.ask("GraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
    for _ in range(times):
        bare.ask("GraphLaunch", executable, stream)
    bare.ask("StreamSynchronize", stream)
    return executable


def test_captured_work_runs_when_its_graph_is_launched_and_not_before(bare: BareGpu) -> None:
    runs: list[int] = []
    stream = begin(bare)
    bare.launch(stream, lambda: runs.append(1))
    assert status(bare, stream) == 1
    answer, graph = end(bare, stream)
    assert (answer, status(bare, stream), runs) == (0, 0, [])
    executable = launch(bare, graph, stream, times=3)
    assert runs == [1, 1, 1]
    bare.ask("GraphExecDestroy", executable)
    bare.ask("GraphDestroy", graph)
    assert bare.call("GraphDestroy", graph) == 1


def allocate(bare: BareGpu) -> int:
    address = ctypes.c_uint64()
    return bare.call("MemAlloc", ctypes.byref(address), ctypes.c_size_t(64))


def allocate_host(bare: BareGpu) -> int:
    address = ctypes.c_void_p()
    return bare.call("MemHostAlloc", ctypes.byref(address), ctypes.c_size_t(64), ctypes.c_uint(0))


UNSAFE: dict[str, Callable[[BareGpu], Callable[[], int]]] = {
    "an allocation": lambda bare: lambda: allocate(bare),
    "an allocation of pinned memory": lambda bare: lambda: allocate_host(bare),
    "a free": lambda bare: (lambda address: lambda: bare.call("MemFree", address))(ctypes.c_uint64(bare.allocate())),
    "a query of another stream": lambda bare: (lambda stream: lambda: bare.call("StreamQuery", stream))(bare.stream()),
    "a query of an event": lambda bare: (lambda event: lambda: bare.call("EventQuery", event))(bare.event()),
}


@pytest.mark.parametrize("call", UNSAFE)
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
def test_an_unsafe_call_is_refused_and_makes_the_capture_invalid(bare: BareGpu, call: str, mode: int) -> None:
    unsafe = UNSAFE[call](bare)
    stream = begin(bare, mode)
    assert unsafe() == UNSUPPORTED
    assert status(bare, stream) == 2
    answer, graph = end(bare, stream)
    assert answer == INVALIDATED and graph.value is None
    assert unsafe() in (0, 600)


@pytest.mark.parametrize("call", UNSAFE)
def test_an_unsafe_call_is_allowed_by_a_relaxed_capture_or_a_relaxed_thread(bare: BareGpu, call: str) -> None:
    for mode, own in ((RELAXED, GLOBAL), (GLOBAL, RELAXED)):
        unsafe = UNSAFE[call](bare)
        stream = begin(bare, mode)
        assert exchange(bare, own) == GLOBAL
        assert unsafe() == 0
        assert exchange(bare, GLOBAL) == own
        assert end(bare, stream)[0] == 0


def test_a_global_capture_forbids_other_threads_and_a_local_one_does_not(bare: BareGpu) -> None:
    for mode, wanted in ((GLOBAL, UNSUPPORTED), (THREAD_LOCAL, 0)):
        stream, answers = begin(bare, mode), list[int]()
        bare.start(lambda answers=answers: answers.append(allocate(bare))).join()  # type: ignore[misc]
        assert answers == [wanted]
        assert end(bare, stream)[0] == (INVALIDATED if wanted else 0)


def test_a_kind_driver_lets_everything_happen_beside_a_capture() -> None:
    with simulated_gpu(1, "64MiB", habits={"capture_rules": False}) as gpu:
        bare = BareGpu(gpu)
        stream = begin(bare)
        assert allocate(bare) == 0
        assert end(bare, stream)[0] == 0


def test_waiting_for_a_stream_that_is_captured_is_refused_in_every_mode(bare: BareGpu) -> None:
    stream = begin(bare, RELAXED)
    assert bare.call("StreamSynchronize", stream) == UNSUPPORTED
    assert end(bare, stream)[0] == INVALIDATED


def test_events_join_streams_to_a_capture_and_back(bare: BareGpu) -> None:
    runs: list[str] = []
    stream, other, event = begin(bare), bare.stream(), bare.event()
    bare.ask("EventRecord", event, stream)
    bare.ask("StreamWaitEvent", other, event, ctypes.c_uint(0))
    assert status(bare, other) == 1
    assert bare.call("EventQuery", event) == UNSUPPORTED
    assert end(bare, stream)[0] == INVALIDATED

    bare.ask("StreamBeginCapture", stream, ctypes.c_int(RELAXED))
    bare.ask("EventRecord", event, stream)
    bare.ask("StreamWaitEvent", other, event, ctypes.c_uint(0))
    bare.launch(other, lambda: runs.append("other"))
    assert end(bare, other)[0] == UNMATCHED
    assert end(bare, stream)[0] == INVALIDATED

    bare.ask("StreamBeginCapture", stream, ctypes.c_int(RELAXED))
    bare.ask("EventRecord", event, stream)
    bare.ask("StreamWaitEvent", other, event, ctypes.c_uint(0))
    bare.launch(other, lambda: runs.append("other"))
    assert end(bare, stream)[0] == UNJOINED
    assert bare.call("EventQuery", event) == CAPTURED_EVENT

    bare.ask("StreamBeginCapture", stream, ctypes.c_int(RELAXED))
    bare.ask("EventRecord", event, stream)
    bare.ask("StreamWaitEvent", other, event, ctypes.c_uint(0))
    bare.launch(other, lambda: runs.append("other"))
    bare.ask("EventRecord", event, other)
    bare.ask("StreamWaitEvent", stream, event, ctypes.c_uint(0))
    answer, graph = end(bare, stream)
    assert answer == 0
    launch(bare, graph, stream)
    assert runs == ["other"]


def test_work_of_a_capture_cannot_wait_for_work_outside_of_it(bare: BareGpu) -> None:
    outside, event = bare.stream(), bare.event()
    bare.ask("EventRecord", event, outside)
    stream = begin(bare)
    assert bare.call("StreamWaitEvent", stream, event, ctypes.c_uint(0)) == ISOLATION
    assert end(bare, stream)[0] == INVALIDATED


def test_two_captures_cannot_become_one(bare: BareGpu) -> None:
    first, second, event = begin(bare), begin(bare), bare.event()
    bare.ask("EventRecord", event, first)
    assert bare.call("StreamWaitEvent", second, event, ctypes.c_uint(0)) == MERGE
    assert (end(bare, first)[0], end(bare, second)[0]) == (0, INVALIDATED)


def test_the_legacy_stream_is_refused_beside_the_capture_of_a_blocking_stream(bare: BareGpu) -> None:
    legacy = ctypes.c_void_p(1)
    assert bare.call("StreamBeginCapture", legacy, ctypes.c_int(GLOBAL)) == UNSUPPORTED
    address = bare.allocate()
    stream = begin(bare, blocking=True)
    assert bare.call("MemsetD8Async", ctypes.c_uint64(address), 0, ctypes.c_size_t(16), legacy) == IMPLICIT
    assert end(bare, stream)[0] == INVALIDATED
    quiet = begin(bare)
    bare.ask("MemsetD8Async", ctypes.c_uint64(address), 0, ctypes.c_size_t(16), legacy)
    assert end(bare, quiet)[0] == 0


def test_a_capture_ends_on_the_thread_and_stream_where_it_began(bare: BareGpu) -> None:
    stream, answers = begin(bare), list[int]()
    bare.start(lambda: answers.append(end(bare, stream)[0])).join()
    assert answers == [WRONG_THREAD]
    assert end(bare, stream)[0] == 0
    assert end(bare, stream)[0] == ILLEGAL_STATE
    relaxed = begin(bare, RELAXED)
    bare.start(lambda: answers.append(end(bare, relaxed)[0])).join()
    assert answers == [WRONG_THREAD, 0]


def test_memory_of_a_graph_is_kept_until_the_graph_ends(bare: BareGpu) -> None:
    outside = ctypes.c_uint64()
    stream = bare.stream()
    bare.ask("MemAllocAsync", ctypes.byref(outside), ctypes.c_size_t(4096), stream)
    bare.ask("StreamBeginCapture", stream, ctypes.c_int(GLOBAL))
    inside = ctypes.c_uint64()
    bare.ask("MemAllocAsync", ctypes.byref(inside), ctypes.c_size_t(4096), stream)
    bare.ask("MemsetD8Async", inside, ctypes.c_ubyte(1), ctypes.c_size_t(4096), stream)
    assert bare.call("MemFreeAsync", outside, stream) == 1  # not the capture's own
    bare.ask("MemFreeAsync", inside, stream)
    answer, graph = end(bare, stream)
    assert answer == 0
    executable = launch(bare, graph, stream, times=2)
    heir = ctypes.c_uint64()
    bare.ask("MemAllocAsync", ctypes.byref(heir), ctypes.c_size_t(4096), stream)
    assert heir.value != inside.value
    for address in (heir, outside):
        bare.ask("MemFreeAsync", address, stream)
    bare.ask("GraphDestroy", graph)
    assert bare.gpu.report()["pool_allocations"] == 1
    bare.ask("GraphExecDestroy", executable)
    assert bare.gpu.report()["pool_allocations"] == 0


def test_a_stream_that_ends_makes_its_capture_invalid(bare: BareGpu) -> None:
    stream, other, event = begin(bare), bare.stream(), bare.event()
    bare.ask("EventRecord", event, stream)
    bare.ask("StreamWaitEvent", other, event, ctypes.c_uint(0))
    bare.ask("StreamDestroy", other)
    assert end(bare, stream)[0] == INVALIDATED
    lonely = begin(bare)
    bare.ask("StreamDestroy", lonely)
    assert allocate(bare) == 0

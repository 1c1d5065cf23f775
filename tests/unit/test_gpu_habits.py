"""The habits of real drivers: each is there by default or by name, and each can be switched off."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.bare_gpu import INVALID_VALUE, NOT_READY, BareGpu, properties, rights
from tensormem import errors
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import HABITS

VENDORS = ["cuda", "rocm"]
MIB = 1 << 20


@contextmanager
def machine(vendor: str, habit: str, *, on: bool, queue: int = 1024) -> Iterator[BareGpu]:
    """Two devices whose driver has this habit, or has it not."""
    with simulated_gpu(2, "64MiB", vendor=vendor, habits={habit: on}, queue=queue) as gpu:
        yield BareGpu(gpu)


def test_a_habit_that_is_none_is_refused() -> None:
    for wrong in ({"kindness": True}, {"free_waits": 1}):
        with pytest.raises(errors.InvalidArgument, match="habit"), simulated_gpu(habits=wrong):  # type: ignore[arg-type]
            pass
    with pytest.raises(errors.InvalidArgument, match="there are h100, orin"), simulated_gpu(profile="abacus"):
        pass


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("vendor", VENDORS)
def test_every_habit_can_be_switched(vendor: str, habit: str) -> None:
    for on in (True, False):
        with machine(vendor, habit, on=on):
            pass


# --- Freeing waits for the device ---


def plain(bare: BareGpu) -> Callable[[], object]:
    address = ctypes.c_uint64(bare.allocate())
    return lambda: bare.ask("MemFree", address)


def pinned(bare: BareGpu) -> Callable[[], object]:
    address = ctypes.c_void_p()
    bare.ask("MemHostAlloc", ctypes.byref(address), ctypes.c_size_t(4096), ctypes.c_uint(0))
    return lambda: bare.ask("MemFreeHost", address)


def registered(bare: BareGpu) -> Callable[[], object]:
    memory = ctypes.create_string_buffer(4096)
    bare.ask("MemHostRegister", memory, ctypes.c_size_t(4096), ctypes.c_uint(0))
    return lambda: bare.ask("MemHostUnregister", memory)


FREES = {"MemFree": plain, "MemFreeHost": pinned, "MemHostUnregister": registered}


@pytest.mark.parametrize("function", FREES)
@pytest.mark.parametrize("vendor", VENDORS)
def test_freeing_waits_for_work_that_does_not_touch_the_memory(vendor: str, function: str) -> None:
    with machine(vendor, "free_waits", on=True) as bare:
        gate, order = threading.Event(), list[str]()
        free = FREES[function](bare)
        stream = bare.stream()
        bare.launch(stream, gate.wait)
        bare.launch(stream, lambda: order.append("work"))

        def free_and_note() -> None:
            free()
            order.append("freed")

        thread = bare.start(free_and_note)
        bare.await_calls(function, 1)
        gate.set()
        thread.join()
        assert order == ["work", "freed"]


@pytest.mark.parametrize("function", FREES)
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_kind_driver_frees_beside_work_that_does_not_touch_the_memory(vendor: str, function: str) -> None:
    with machine(vendor, "free_waits", on=False) as bare:
        gate = threading.Event()
        free = FREES[function](bare)
        bare.launch(bare.stream(), gate.wait)
        free()  # returns although the stream is held
        gate.set()


# --- Host functions run one at a time ---


@pytest.mark.parametrize("vendor", VENDORS)
def test_host_functions_of_two_streams_run_one_after_the_other(vendor: str) -> None:
    with machine(vendor, "serial_host_functions", on=True) as bare:
        began, gate, order = threading.Event(), threading.Event(), list[str]()
        first, second = bare.stream(), bare.stream()

        def hold() -> None:
            began.set()
            gate.wait()
            order.append("first")

        bare.launch(first, hold)
        began.wait()
        bare.launch(second, lambda: order.append("second"))
        assert bare.call("StreamQuery", second) == NOT_READY
        gate.set()
        bare.ask("StreamSynchronize", second)
        assert order == ["first", "second"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_kind_driver_runs_host_functions_side_by_side(vendor: str) -> None:
    with machine(vendor, "serial_host_functions", on=False) as bare:
        gate = threading.Event()
        first, second = bare.stream(), bare.stream()
        bare.launch(first, gate.wait)
        bare.launch(second, gate.set)
        bare.ask("StreamSynchronize", first)


# --- Peers need a grant ---


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_device_reaches_plain_memory_of_another_with_a_grant_alone(vendor: str) -> None:
    with machine(vendor, "peer_grants", on=True) as bare:
        theirs = bare.allocate()
        bare.use(1)
        ours, stream = bare.allocate(), bare.stream()
        assert bare.copy(ours, theirs, 4096, stream) == INVALID_VALUE
        assert bare.copy_peer((1, ours), (0, theirs), 4096, stream) == 0
        if vendor == "cuda":
            bare.ask("CtxEnablePeerAccess", bare.contexts[0], ctypes.c_uint(0))
        else:
            bare.ask("DeviceEnablePeerAccess", 0, ctypes.c_uint(0))
        assert bare.copy(ours, theirs, 4096, stream) == 0


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_device_reaches_mapped_memory_of_another_with_a_grant_alone(vendor: str) -> None:
    with machine(vendor, "peer_grants", on=True) as bare:
        theirs, _ = bare.map_physical(0)
        bare.open_to(theirs, 2 * MIB, 0)
        bare.use(1)
        ours, stream = bare.allocate(), bare.stream()
        assert bare.copy(ours, theirs, 4096, stream) == INVALID_VALUE
        assert bare.copy_peer((1, ours), (0, theirs), 4096, stream) == 0
        bare.open_to(theirs, 2 * MIB, 1)
        assert bare.copy(ours, theirs, 4096, stream) == 0


def test_a_device_reaches_pooled_memory_of_another_with_a_grant_alone() -> None:
    with machine("cuda", "peer_grants", on=True) as bare:
        pool, address = ctypes.c_void_p(), ctypes.c_uint64()
        wanted = properties(0)
        bare.ask("MemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
        first = bare.stream()
        bare.ask("MemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(4096), pool, first)
        bare.ask("StreamSynchronize", first)
        bare.use(1)
        ours, stream = bare.allocate(), bare.stream()
        assert bare.copy(ours, address.value, 4096, stream) == INVALID_VALUE
        assert bare.copy_peer((1, ours), (0, address.value), 4096, stream) == 0
        bare.ask("MemPoolSetAccess", pool, ctypes.byref(rights(1)), ctypes.c_size_t(1))
        assert bare.copy(ours, address.value, 4096, stream) == 0


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_kind_driver_lets_every_device_reach_all_memory(vendor: str) -> None:
    with machine(vendor, "peer_grants", on=False) as bare:
        theirs = bare.allocate()
        bare.use(1)
        assert bare.copy(bare.allocate(), theirs, 4096, bare.stream()) == 0


# --- Descriptors ---


def export(bare: BareGpu, handle: ctypes.c_uint64) -> int:
    fd = ctypes.c_int(-1)
    bare.ask("MemExportToShareableHandle", ctypes.byref(fd), handle, ctypes.c_int(1), ctypes.c_uint64(0))
    return fd.value


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("on", [True, False])
def test_a_descriptor_tells_no_size_and_still_brings_the_memory(vendor: str, on: bool) -> None:
    with machine(vendor, "sizeless_descriptors", on=on) as bare:
        address, handle = bare.map_physical(0)
        bare.open_to(address, 2 * MIB, 0)
        stream = bare.stream()
        bare.ask("MemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(7), ctypes.c_size_t(16), stream)
        fd = export(bare, handle)
        assert os.fstat(fd).st_size == (0 if on else 2 * MIB)
        for _ in range(2):  # a descriptor can be imported again
            again, place = ctypes.c_uint64(), ctypes.c_uint64()
            bare.ask("MemImportFromShareableHandle", ctypes.byref(again), ctypes.c_void_p(fd), ctypes.c_int(1))
            bare.map(place, 2 * MIB, again)
            bare.open_to(place.value, 2 * MIB, 0)
            seen = ctypes.create_string_buffer(16)
            assert bare.copy(ctypes.addressof(seen), place.value, 16, stream) == 0
            bare.ask("StreamSynchronize", stream)
            assert seen.raw == bytes([7] * 16)
        os.close(fd)


@pytest.mark.parametrize("profile", ["mi300-rocm6.2", "mi300-rocm7.1", "mi300-rocm10"])
def test_hip_takes_the_address_of_a_descriptor_up_to_7_0_and_its_value_after(profile: str) -> None:
    by_pointer = profile == "mi300-rocm6.2"
    with simulated_gpu(1, "64MiB", vendor="rocm", profile=profile) as gpu:
        bare = BareGpu(gpu)
        _, handle = bare.map_physical(0)
        fd, made = ctypes.c_int(export(bare, handle)), ctypes.c_uint64()
        right = ctypes.byref(fd) if by_pointer else ctypes.c_void_p(fd.value)
        if by_pointer:
            wrong = ctypes.c_void_p(fd.value)
            answer = bare.call("MemImportFromShareableHandle", ctypes.byref(made), wrong, ctypes.c_int(1))
            assert answer == INVALID_VALUE
        bare.ask("MemImportFromShareableHandle", ctypes.byref(made), right, ctypes.c_int(1))
        os.close(fd.value)


# --- Queues, pools, events ---


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_launch_waits_while_the_queue_is_full(vendor: str) -> None:
    with machine(vendor, "bounded_queue", on=True, queue=16) as bare:
        gate, order, stream = threading.Event(), list[str](), bare.stream()
        bare.launch(stream, gate.wait)
        bare.launch(stream, lambda: order.append("work"))

        def launch_many() -> None:
            for _ in range(40):
                bare.launch(stream, lambda: None)
            order.append("launched")

        thread = bare.start(launch_many)
        bare.await_calls("LaunchHostFunc", 16)
        gate.set()
        thread.join()
        bare.ask("StreamSynchronize", stream)
        assert order == ["work", "launched"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_kind_driver_queues_without_end(vendor: str) -> None:
    with machine(vendor, "bounded_queue", on=False, queue=16) as bare:
        gate, stream = threading.Event(), bare.stream()
        bare.launch(stream, gate.wait)
        for _ in range(100):
            bare.launch(stream, lambda: None)
        gate.set()


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("on", [True, False])
def test_a_pool_allocates_nothing_at_an_address_of_its_own(vendor: str, on: bool) -> None:
    with machine(vendor, "zero_byte_pools", on=on) as bare:
        stream, first, second = bare.stream(), ctypes.c_uint64(), ctypes.c_uint64()
        answer = bare.call("MemAllocAsync", ctypes.byref(first), ctypes.c_size_t(0), stream)
        assert answer == (0 if on else INVALID_VALUE)
        if on:
            bare.ask("MemAllocAsync", ctypes.byref(second), ctypes.c_size_t(0), stream)
            assert first.value != 0 and first.value != second.value
            for address in (first, second):
                bare.ask("MemFreeAsync", address, stream)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("on", [True, False])
def test_events_with_times_are_counted_and_take_time_on_the_stream(vendor: str, on: bool) -> None:
    with machine(vendor, "timing_cost", on=on) as bare:
        stream, milliseconds = bare.stream(), ctypes.c_float()
        plain_event, start, end = bare.event(), bare.event(0), bare.event(0)
        bare.ask("EventRecord", plain_event, stream)
        assert bare.gpu.timing_records == 0
        gate = threading.Event()
        bare.launch(stream, gate.wait)
        for event in (start, end):
            bare.ask("EventRecord", event, stream)
        gate.set()
        bare.ask("EventSynchronize", end)
        assert bare.gpu.timing_records == 2
        bare.ask("EventElapsedTime", ctypes.byref(milliseconds), start, end)
        assert milliseconds.value >= (0.005 if on else 0)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("minimum", ["4KiB", "64KiB", "2MiB"])
def test_granularity_is_what_the_driver_says(vendor: str, minimum: str) -> None:
    with simulated_gpu(1, "64MiB", vendor=vendor, granularity=minimum, recommended="1GiB") as gpu:
        bare, sizes = BareGpu(gpu), list[int]()
        for option in (0, 1):
            size, wanted = ctypes.c_size_t(), properties(0)
            bare.ask("MemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(wanted), ctypes.c_int(option))
            sizes.append(size.value)
        assert sizes == [int(minimum[:-3]) << {"K": 10, "M": 20}[minimum[-3]], 1 << 30]
        bare.map_physical(0, sizes[0])
        with pytest.raises(AssertionError, match="answered 1"):
            bare.map_physical(0, sizes[0] + 2048)

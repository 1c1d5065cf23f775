"""The CUDA driver behind the waist, on the simulated GPU: devices, streams, events, copies, fills, pinned memory."""

import ctypes
import faulthandler
import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

import tensormem as tm
from tensormem import drivers, errors, mr, spaces
from tensormem._core import Driver
from tensormem.streams import Event, Stream
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.resources import Gate

MIB = 1 << 20


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory=["64MiB", "32MiB"]) as machine:
        yield machine


def block_of(device: int, nbytes: int) -> mr.DeviceBlock:
    return mr.GpuMemoryResource(f"cuda:{device}").allocate(nbytes)


def bytes_of(address: int, nbytes: int, driver: Driver) -> bytes:
    """What a device has there, copied to the host."""
    buffer = ctypes.create_string_buffer(nbytes)
    driver.copy(ctypes.addressof(buffer), address, nbytes)
    Stream.default(driver).synchronize()
    return buffer.raw


# --- Which drivers there are ---


def test_each_device_has_a_driver_that_says_it_is_simulated(gpu: SimulatedGpu) -> None:
    driver = drivers.get("cuda:1")
    assert (driver.name, driver.device, driver.device_count, driver.simulated) == ("cuda", 1, 2, True)
    assert repr(driver) == "<Driver cuda:1 (simulated)>"
    assert driver.device_info()["simulated"] and "simulated" in driver.device_info()["name"]
    assert driver.memory_info() == (32 * MIB, 32 * MIB)
    assert driver.memory_info(0) == (64 * MIB, 64 * MIB)


def test_the_number_0_and_the_first_of_any_vendor_are_understood(gpu: SimulatedGpu) -> None:
    assert drivers.get("cuda") is drivers.get("cuda:0") is drivers.gpu(0) is drivers.gpu("gpu:0")
    assert drivers.gpu(tm.gpu(1)) is drivers.get("cuda:1")
    assert pickle.loads(pickle.dumps(drivers.get("cuda:1"))) is drivers.get("cuda:1")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:99", "gpu:2"])
def test_a_device_that_is_not_there_is_named(gpu: SimulatedGpu, name: str) -> None:
    with pytest.raises(errors.DriverUnavailable, match="2 devices"):
        drivers.gpu(name)


@pytest.mark.parametrize("name", ["cuda:x", "cuda:-1", "cuda:1.5", "main"])
def test_what_names_no_gpu_is_refused(gpu: SimulatedGpu, name: str) -> None:
    with pytest.raises((errors.InvalidArgument, errors.DriverUnavailable)):
        drivers.gpu(name)


def test_devices_are_known_as_compute_devices_while_the_simulation_is_on(gpu: SimulatedGpu) -> None:
    assert spaces.ComputeDevice("cuda", 1) in spaces.compute_devices()
    assert spaces.preferred_compute_devices(tm.gpu(1)) == [spaces.ComputeDevice("cuda", 1)]


def test_nothing_of_a_simulation_stays_when_it_ends() -> None:
    with simulated_gpu(devices=1, memory="32MiB"):
        stream = Stream(drivers.get("cuda"))
        resource = mr.GpuMemoryResource()
        block = resource.allocate(64)
    assert stream.closed
    assert spaces.compute_devices() == [spaces.ComputeDevice("cpu")]
    for call in (partial(resource.allocate, 64), partial(resource.deallocate, block), partial(Stream, resource.driver)):
        with pytest.raises((errors.NotSupported, errors.StreamMisuse)):
            call()


def test_without_a_driver_the_reason_is_told() -> None:
    if any(result.works for result in drivers.probe() if result.name == "cuda"):
        pytest.skip("this machine has a CUDA driver")
    with pytest.raises(errors.DriverUnavailable, match=r"libcuda\.so\.1"):
        drivers.get("cuda:0")
    result = next(result for result in drivers.probe() if result.name == "cuda")
    assert not result.works and result.advice


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"version": 11000}, "11.3 or newer is needed"),
        ({"without": "cuMemAlloc"}, "has no cuMemAlloc"),
        ({"without": "cuEventRecord+cuLaunchHostFunc"}, "has no cuLaunchHostFunc, cuEventRecord"),
    ],
)
def test_a_driver_that_cannot_be_used_says_why(options: dict[str, int | str], reason: str) -> None:
    with pytest.raises(errors.DriverUnavailable, match=reason), simulated_gpu(memory="32MiB", **options):  # type: ignore[arg-type]
        pass


def test_what_an_older_driver_lacks_is_not_supported_and_the_rest_works() -> None:
    with simulated_gpu(memory="32MiB", without="cuMemCreate+cuMemAllocFromPoolAsync"):
        driver = drivers.get("cuda")
        assert not driver.device_info()["virtual_memory"]
        with pytest.raises(errors.NotSupported, match="cuMemCreate"):
            driver.physical_create(2 * MIB)
        with pytest.raises(errors.NotSupported, match="no pools"):
            mr.GpuAsyncMemoryResource().allocate(64)
        mr.GpuMemoryResource().allocate(64)


# --- Memory ---


def test_host_code_that_touches_device_memory_faults(gpu: SimulatedGpu) -> None:
    block = block_of(0, 4096)
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        ctypes.memset(block.ptr, 1, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def test_memory_of_a_device_runs_out_with_the_facts(gpu: SimulatedGpu) -> None:
    kept = block_of(1, 30 * MIB)
    with pytest.raises(errors.OutOfMemory) as caught:
        block_of(1, 4 * MIB)
    assert (caught.value.requested, caught.value.total_free) == (4 * MIB, 2 * MIB)
    assert drivers.get("cuda:1").memory_info()[0] == 2 * MIB
    del kept


def test_zeroed_pinned_and_managed_memory_are_the_hosts_too(gpu: SimulatedGpu) -> None:
    for resource in (mr.PinnedMemoryResource("cuda:0"), mr.ManagedMemoryResource("cuda:0")):
        block = resource.allocate(4096)
        ctypes.memset(block.ptr, 7, 4096)
        assert bytes_of(block.ptr, 4096, resource.driver) == b"\7" * 4096
        assert resource.is_host_accessible and resource.is_device_accessible


def test_pinning_others_memory_is_counted_and_undone(gpu: SimulatedGpu) -> None:
    buffer = ctypes.create_string_buffer(65536)
    driver = drivers.get("cuda")
    driver.pin(ctypes.addressof(buffer), 65536)
    with pytest.raises(errors.DriverError) as caught:
        driver.pin(ctypes.addressof(buffer), 65536)
    assert (caught.value.code, caught.value.driver) == (712, "cuda")
    assert caught.value.name == "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
    driver.unpin(ctypes.addressof(buffer), 65536)
    assert gpu.report()["registrations"] == 0


# --- Copies and fills ---


def test_bytes_go_to_a_device_to_the_other_one_and_back(gpu: SimulatedGpu) -> None:
    source = ctypes.create_string_buffer(bytes(range(256)) * 16, 4096)
    first, second = block_of(0, 4096), block_of(1, 4096)
    driver = drivers.get("cuda:0")
    with Stream(driver) as stream:
        driver.copy(first.ptr, ctypes.addressof(source), 4096, stream)
        driver.copy(second.ptr, first.ptr, 4096, stream)
        stream.synchronize()
    assert bytes_of(second.ptr, 4096, drivers.get("cuda:1")) == source.raw


@pytest.mark.parametrize("planes_touch", [True, False])
def test_boxes_are_copied_row_by_row_and_plane_by_plane(gpu: SimulatedGpu, planes_touch: bool) -> None:
    width, height, depth, pitch = 5, 3, 4, 16
    plane = pitch * height if planes_touch else pitch * height + 7
    source = ctypes.create_string_buffer(bytes(n % 251 for n in range(plane * depth)), plane * depth)
    block = block_of(0, 8192)
    driver = drivers.get("cuda")
    driver.fill(block.ptr, 0xEE, 1, (8192, 1, 1))
    driver.copy_pitched(
        block.ptr,
        32,
        ctypes.addressof(source),
        pitch,
        (width, height, depth),
        destination_plane=32 * 6,
        source_plane=plane,
    )
    got = bytes_of(block.ptr, 8192, driver)
    for z in range(depth):
        for y in range(height):
            row = z * 32 * 6 + y * 32
            assert got[row : row + width] == source.raw[z * plane + y * pitch : z * plane + y * pitch + width]
            assert got[row + width : row + 32] == b"\xee" * (32 - width)


@pytest.mark.parametrize(("element", "value"), [(1, 0xAB), (2, 0x1234), (4, 0xDEADBEEF), (8, 0x0102030405060708)])
@pytest.mark.parametrize("height", [1, 3])
def test_fills_repeat_the_element_and_touch_nothing_else(
    gpu: SimulatedGpu, element: int, value: int, height: int
) -> None:
    block = block_of(0, 1024)
    driver = drivers.get("cuda")
    driver.fill(block.ptr, 0, 1, (1024, 1, 1))
    driver.fill(block.ptr, value, element, (48, height, 1), pitch=64)
    got = bytes_of(block.ptr, 1024, driver)
    for row in range(height):
        start = row * 64
        assert got[start : start + 48] == value.to_bytes(element, "little") * (48 // element)
        assert got[start + 48 : start + 64] == bytes(16)
    assert not any(got[height * 64 :])


def test_an_address_that_is_nobodys_memory_is_refused_by_the_driver() -> None:
    with simulated_gpu(memory="64MiB", strict=False) as gpu:
        block = block_of(0, 512)
        with pytest.raises(errors.DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            drivers.get("cuda").fill(block.ptr, 0, 1, (4096, 1, 1))
        assert len(gpu.violations()) == 1


# --- Streams and events ---


def test_streams_run_in_order_and_wait_for_one_anothers_events(gpu: SimulatedGpu) -> None:
    driver, order, gate = drivers.get("cuda:1"), list[str](), Gate()
    with Stream(driver) as first, Stream(driver) as second:
        gate.hold(first)
        first.launch(order.append, "first")
        event = first.record()
        second.wait(event)
        second.launch(order.append, "second")
        assert not event.done and not second.done
        gate.open()
        second.synchronize()
        assert event.done and order == ["first", "second"]


def test_the_time_between_two_events_is_positive(gpu: SimulatedGpu) -> None:
    with Stream(drivers.get("cuda")) as stream:
        start = stream.record(timing=True)
        stream.launch(sum, [1, 2])
        end = stream.record(timing=True)
        stream.synchronize()
        assert end.seconds_since(start) >= 0


def test_a_stream_offers_its_handle_and_takes_others(gpu: SimulatedGpu) -> None:
    resource = mr.GpuMemoryResource("cuda:0")
    with Stream(resource.driver) as stream:
        version, handle = stream.__cuda_stream__()
        assert version == 0 and handle > 2

        class Foreign:
            def __cuda_stream__(self) -> tuple[int, int]:
                return 0, handle

        block = resource.allocate(64, Foreign())
        assert gpu.platform.held["streams"] == 1
        resource.deallocate(block, stream)
    assert Stream.default(resource.driver).__cuda_stream__() == (0, 0)


def test_a_stream_of_the_other_device_is_taken_but_its_default_stream_is_not(gpu: SimulatedGpu) -> None:
    resource = mr.GpuMemoryResource("cuda:0")
    with Stream(drivers.get("cuda:1")) as other:
        resource.deallocate(resource.allocate(64, other), other)
    with pytest.raises(errors.StreamMisuse):
        resource.allocate(64, Stream.default(drivers.get("cuda:1")))
    with Stream(drivers.host()) as host, pytest.raises(errors.StreamMisuse):
        resource.allocate(64, host)


def watching(gpu: SimulatedGpu) -> int:
    """How many events watch over the devices, which each has when it was used."""
    for driver in gpu.drivers:
        Event(driver).close()
    return gpu.report()["events"]


def test_an_event_goes_to_the_device_where_it_is_recorded(gpu: SimulatedGpu) -> None:
    before = watching(gpu)
    event, gate = Event(drivers.get("cuda:0")), Gate()
    with Stream(drivers.get("cuda:1")) as stream, Stream(drivers.get("cuda:0")) as other:
        gate.hold(stream)
        stream.record(event)
        other.wait(event)
        assert not event.done and not other.done
        gate.open()
        other.synchronize()
        assert event.done
        other.record(event)
    assert gpu.report()["events"] == before + 1
    event.close()
    assert gpu.report()["events"] == before


@pytest.mark.parametrize("function", ["cuEventCreate", "cuEventRecord", "cuEventDestroy"])
def test_an_event_that_cannot_move_stays_as_it_was(gpu: SimulatedGpu, function: str) -> None:
    before = watching(gpu)
    event = Event(drivers.get("cuda:0"))
    with Stream(drivers.get("cuda:1")) as stream:
        gpu.fail(function, 1, 999)
        with suppress(errors.DriverError):
            stream.record(event)
        assert gpu.has_failed
        gpu.clear_plan()
        stream.record(event).synchronize()
    event.close()
    Event(drivers.get("cuda:0")).close()
    assert gpu.report()["events"] == before


def test_an_event_dropped_by_work_on_a_stream_is_destroyed_later(gpu: SimulatedGpu) -> None:
    before = watching(gpu)
    driver = drivers.get("cuda")
    events = [Event(driver)]
    with Stream(driver) as stream:
        stream.launch(events.clear)
        stream.synchronize()
    assert gpu.report()["events"] == before + 1
    del events
    Event(driver).close()
    assert gpu.report()["events"] == before


def test_the_callers_context_is_left_as_it_was(gpu: SimulatedGpu) -> None:
    library, context = ctypes.CDLL(gpu.library), ctypes.c_void_p()
    block_of(1, 64)
    assert library.cuCtxGetCurrent(ctypes.byref(context)) == 0
    assert context.value is None


# --- When things go wrong ---


def test_a_lost_device_answers_nothing_any_more_and_the_other_goes_on(gpu: SimulatedGpu) -> None:
    resource, healthy = mr.GpuMemoryResource("cuda:0"), mr.GpuMemoryResource("cuda:1")
    block = resource.allocate(64)
    gpu.break_device(0, 719)
    for call in (lambda: resource.allocate(64), lambda: Stream(resource.driver), lambda: resource.deallocate(block)):
        with pytest.raises(errors.DriverError) as caught:
            call()
        assert (caught.value.code, caught.value.name) == (719, "CUDA_ERROR_LAUNCH_FAILED")
    healthy.deallocate(healthy.allocate(64))


def test_a_context_destroyed_under_us_is_an_error_that_says_so(gpu: SimulatedGpu) -> None:
    resource = mr.GpuMemoryResource("cuda:0")
    stream = Stream(resource.driver)
    assert ctypes.CDLL(gpu.library).cuDevicePrimaryCtxReset_v2(0) == 0
    with pytest.raises(errors.DriverError, match="CUDA_ERROR_CONTEXT_IS_DESTROYED"):
        stream.synchronize()
    del stream


def test_the_child_of_a_fork_is_told_to_use_spawn(gpu: SimulatedGpu) -> None:
    resource = mr.GpuMemoryResource("cuda:0")
    stream = Stream(resource.driver)
    child = os.fork()
    if child == 0:
        told = 1
        try:
            resource.allocate(64)
        except errors.NotSupported as refusal:
            told = 0 if "spawn" in str(refusal) and stream.closed else 2
        os._exit(told)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    resource.deallocate(resource.allocate(64, stream), stream)

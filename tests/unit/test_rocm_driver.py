"""The HIP driver behind the waist, on the simulated GPU: what is not already proven by the shared suites."""

import ctypes
from collections.abc import Iterator

import pytest

import tensormem as tm
from tensormem import drivers, errors, mr, spaces
from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

MIB = 1 << 20


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor="rocm") as machine:
        yield machine


def test_devices_are_found_under_both_names_and_by_number(gpu: SimulatedGpu) -> None:
    assert drivers.get("rocm:1") is drivers.get("hip:1") is drivers.gpu(tm.gpu(1))
    assert repr(drivers.get("rocm")) == "<Driver rocm:0 (simulated)>"
    assert spaces.ComputeDevice("rocm", 1) in spaces.compute_devices()
    assert drivers.get("rocm").device_info()["virtual_memory"]


def test_both_vendors_can_be_there_at_once_and_do_not_share_streams(gpu: SimulatedGpu) -> None:
    with simulated_gpu(memory="32MiB") as other, Stream(drivers.get("cuda")) as stream:
        assert (drivers.gpu(0).name, drivers.get("rocm").memory_info()[1]) == ("cuda", 64 * MIB)
        with pytest.raises(errors.StreamMisuse):
            mr.GpuMemoryResource("rocm:0").allocate(64, stream)
        assert other.calls("hipMalloc") == 0


def test_boxes_and_fills_touch_what_they_say(gpu: SimulatedGpu) -> None:
    driver = drivers.get("rocm:1")
    block = mr.GpuMemoryResource(driver).allocate(4096)
    source = ctypes.create_string_buffer(bytes(range(256)), 256)
    got = ctypes.create_string_buffer(4096)
    for element, value in ((1, 0xAB), (2, 0x1234), (4, 0xDEADBEEF), (8, 0x0102030405060708)):
        driver.fill(block.ptr, value, element, (16, 3, 2), pitch=32, plane=128)
        driver.copy(ctypes.addressof(got), block.ptr, 4096)
        Stream.default(driver).synchronize()
        for start in (0, 32, 64, 128, 160, 192):
            assert got.raw[start : start + 16] == value.to_bytes(element, "little") * (16 // element)
    driver.copy_pitched(block.ptr, 32, ctypes.addressof(source), 8, (5, 3, 2), destination_plane=128, source_plane=50)
    driver.copy(ctypes.addressof(got), block.ptr, 4096)
    Stream.default(driver).synchronize()
    assert got.raw[128 + 64 : 128 + 69] == source.raw[50 + 16 : 50 + 21]


def test_virtual_memory_is_mapped_shared_and_taken_down(gpu: SimulatedGpu) -> None:
    with tm.VirtualMemoryManager("rocm:1") as vmm:
        va = vmm.reserve("8MiB")
        pages = vmm.alloc_physical("2MiB")
        mapping = vmm.map(va, pages, 0, access="read_write")
        drivers.get("rocm:1").fill(mapping.address, 7, 1, (2 * MIB, 1, 1))
    assert gpu.memory() == {}


def test_failures_have_hips_names_and_plain_words(gpu: SimulatedGpu) -> None:
    gpu.fail("hipMalloc", 1, 999)
    with pytest.raises(errors.DriverError) as caught:
        mr.GpuMemoryResource("rocm:0").allocate(64)
    assert (caught.value.name, caught.value.driver, caught.value.call) == ("hipErrorUnknown", "rocm", "hipMalloc")
    gpu.break_device(1, 700)
    with pytest.raises(errors.DriverError, match="hipErrorIllegalAddress"):
        Stream(drivers.get("rocm:1"))


def test_the_callers_device_is_left_as_it_was(gpu: SimulatedGpu) -> None:
    library, device = ctypes.CDLL(gpu.library), ctypes.c_int(-1)
    mr.GpuMemoryResource("rocm:1").allocate(64)
    assert library.hipGetDevice(ctypes.byref(device)) == 0
    assert device.value == 0


def test_a_stream_of_rocm_is_not_offered_as_a_stream_of_cuda(gpu: SimulatedGpu) -> None:
    with Stream(drivers.get("rocm")) as stream:
        assert not hasattr(stream, "__cuda_stream__")
        assert stream.handle > 2


def test_without_the_runtime_the_reason_is_told() -> None:
    if any(result.works for result in drivers.probe() if result.name == "rocm"):
        pytest.skip("this machine has a HIP runtime")
    with pytest.raises(errors.DriverUnavailable, match=r"libamdhip64\.so"):
        drivers.get("rocm:0")

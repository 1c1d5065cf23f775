"""The small NVML beside the simulated CUDA driver."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bare_gpu import BareGpu
from tensormem.testing import simulated_gpu

UNINITIALIZED, INVALID_ARGUMENT, NOT_FOUND, INSUFFICIENT_SIZE, NOT_LOADED = 1, 2, 6, 7, 9


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


def open_nvml(driver: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(driver).with_name("libnvidia-ml.so.1")))


@pytest.fixture
def bare() -> Iterator[BareGpu]:
    with simulated_gpu(2, ["64MiB", "32MiB"]) as gpu:
        yield BareGpu(gpu)


def test_devices_are_found_by_number_and_identity_and_tell_their_memory(bare: BareGpu) -> None:
    nvml, count = open_nvml(bare.gpu.library), ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == UNINITIALIZED
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 2
    device, again, memory = ctypes.c_void_p(), ctypes.c_void_p(), Memory()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(device)) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device)) == 0
    text = ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(device, text, 8) == INSUFFICIENT_SIZE
    assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0 and text.value.startswith(b"GPU-")
    assert nvml.nvmlDeviceGetHandleByUUID(text, ctypes.byref(again)) == 0 and again.value == device.value
    assert nvml.nvmlDeviceGetHandleByUUID(b"GPU-0", ctypes.byref(again)) == NOT_FOUND
    bare.use(1)
    bare.allocate(1 << 20)
    assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
    assert (memory.total, memory.free, memory.used) == (32 << 20, 31 << 20, 1 << 20)
    assert nvml.nvmlShutdown() == 0
    assert nvml.nvmlShutdown() == UNINITIALIZED


def test_without_a_machine_no_driver_is_loaded() -> None:
    with simulated_gpu(1, "32MiB") as gpu:
        library = gpu.library
    assert open_nvml(library).nvmlInit_v2() == NOT_LOADED
